"""Any file, table or list as tables whose rows know their file and line."""
