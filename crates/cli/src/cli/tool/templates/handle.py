"""TOOL_NAME: say here, for people, what the tool does."""


def handle(text: str, times: int = 2) -> str:
    """Repeat a text.

    Args:
        text: What to repeat, for example "ho".
        times: How often, at least once.

    Returns:
        The text, that many times.
    """
    if times < 1:
        raise ValueError("times must be at least 1.")
    return " ".join([text] * times)


def test():
    assert handle("ho", 3) == "ho ho ho"
    try:
        handle("ho", 0)
        assert False, "Should have raised ValueError"
    except ValueError:
        pass
    return handle("hey")
