"""TOOL_NAME: say here, for people, what the tool does."""


def run(input):
    times = input.get("times", 2)
    return {"text": " ".join([input["text"]] * times)}


def test():
    assert run({"text": "ho", "times": 3}) == {"text": "ho ho ho"}
    return run({"text": "hey"})
