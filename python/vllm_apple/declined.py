class Declined(ValueError):
    """Something that this engine does not do; the text says what to do instead."""
