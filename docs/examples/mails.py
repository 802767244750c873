"""Support mails without labels, for the tutorial docs/no-labels.md.

python3 mails.py 500 > mails.csv            # a column, text
python3 mails.py 500 --labels > truth.csv   # with the label that a person would give

Every mail is put together from parts at random; a fifth of them also mention another subject.
"""

import csv
import random
import sys

MAILS = {
    "delivery": [
        "The parcel has been on its way for {days} days.",
        "Where is the {thing} that I ordered {when}?",
        "The courier left the box with somebody I do not know.",
        "The tracking page has not changed since {when}.",
        "Only one of the two boxes has arrived.",
        "Nobody rang the bell, and now the {thing} is at a shop far away.",
        "Can you send the {thing} to my office instead?",
        "When will the {thing} be shipped?",
    ],
    "refund": [
        "I sent the {thing} back {when} and still wait for the money.",
        "You charged my card twice for the {thing}.",
        "I want to return the {thing} and get my money back.",
        "The amount on the invoice is too high.",
        "The discount was not taken off the price of the {thing}.",
        "I cancelled {when}, but the payment was taken.",
        "Who pays if I send the {thing} back?",
        "Please refund the {thing}.",
    ],
    "account": [
        "I cannot log in since {when}.",
        "The link for a new password does not work.",
        "How do I change the email address of my account?",
        "The site says that my account is locked.",
        "Please delete my account and all my data.",
        "I have two accounts and want to keep one of them.",
        "The app asks for a code that never comes.",
        "Somebody else seems to use my login.",
    ],
    "product": [
        "The {thing} stopped working after {days} days.",
        "Does the {thing} also work with 110 volts?",
        "A screw is missing in the bag of the {thing}.",
        "How do I clean the {thing}?",
        "The {thing} makes a strange noise.",
        "Is there a manual for the {thing} in French?",
        "The {thing} is smaller than in the picture.",
        "Which battery does the {thing} need?",
    ],
}
THINGS = [
    "lamp",
    "kettle",
    "jacket",
    "radio",
    "chair",
    "printer",
    "watch",
    "bicycle",
    "toaster",
    "camera",
    "tent",
    "drill",
]
WHEN = ["on Monday", "last week", "yesterday", "two weeks ago", "in March", "before the holidays"]
BEGIN = ["", "", "Hello, ", "Dear team, ", "Good morning. ", "Hi! ", "It is me again. "]
END = ["", "", " Thank you.", " Please help.", " This is the third time I write.", " Regards"]
ASIDE = [" Otherwise I like your shop.", " I have been a customer for years."]
ASIDE += [" By the way, the {thing} from last time is fine.", " I also tried your app."]


def mails(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Return mails with the label that a person would give; no mail is there twice."""
    draws, found = random.Random(seed), dict[str, str]()
    while len(found) < count:
        label = draws.choices(list(MAILS), weights=[4, 3, 2, 3])[0]
        body = draws.choice(MAILS[label]) + (draws.choice(ASIDE) if draws.random() < 0.2 else "")
        slots = {"thing": draws.choice(THINGS), "when": draws.choice(WHEN)}
        text = body.format(**slots, days=draws.randint(2, 20))
        found[draws.choice(BEGIN) + text + draws.choice(END)] = label
    return [{"text": text, "label": label} for text, label in found.items()]


if __name__ == "__main__":
    columns = ["text", "label"] if "--labels" in sys.argv else ["text"]
    writer = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(mails(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
