"""What the lab raises."""


class LabError(Exception):
    """Something a person can act on: the text says what was found, what was expected and what to do."""
