"""The areas of the standard library: which of them a module belongs to."""

from __future__ import annotations

AREAS = {
    "network": """
        asynchat asyncore cgi cgitb ftplib http imaplib ipaddress nntplib poplib smtpd smtplib
        socket socketserver ssl telnetlib urllib uuid webbrowser wsgiref xmlrpc
    """,
    "mail": "email mailbox mailcap mimetypes quopri base64 binhex uu",
    "windows": "curses idlelib tkinter turtle turtledemo",
    "numbers": """
        _pydecimal _pydatetime _pylong calendar colorsys datetime fractions numbers random
        statistics _strptime
    """,
    "text": """
        _markupbase codecs configparser csv difflib gettext html json locale plistlib pprint re
        shlex sre_compile sre_parse string stringprep textwrap tomllib xml
    """,
    "files": """
        _compression _pyio bz2 compression filecmp fileinput fnmatch genericpath glob gzip io lzma
        netrc ntpath os pathlib pipes posixpath shelve shutil stat tarfile tempfile wave zipfile
        aifc sndhdr sunau chunk xdrlib dbm
    """,
    "tasks": """
        asyncio concurrent contextlib multiprocessing queue sched selectors signal subprocess
        threading _threading_local
    """,
    "testing": """
        bdb cProfile cmd doctest faulthandler linecache logging pdb profile pstats pyclbr trace
        traceback tracemalloc timeit unittest warnings
    """,
    "language": """
        _collections_abc _py_abc _weakrefset abc annotationlib ast code codeop collections copy
        dataclasses dis enum functools imp importlib inspect keyword lib2to3 modulefinder opcode
        operator pickle pickletools pkgutil pydoc runpy symtable tabnanny token tokenize types
        typing weakref copyreg reprlib string.templatelib
    """,
    "packaging": "distutils ensurepip site sysconfig venv zipapp zipimport compileall py_compile",
}
_AREA = {module: area for area, modules in AREAS.items() for module in modules.split()}


def area_of(module: str) -> str:
    """The area of a module, by the package it is in; "" where it has none."""
    return _AREA.get(module.partition(".")[0], "")
