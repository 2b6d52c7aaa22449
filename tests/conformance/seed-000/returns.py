# The return examples of the seed, one after the other: a tool has one handle, so each is called from one.
def text() -> str:
    return "Success message"

def whole() -> int:
    return 42

def fraction() -> float:
    return 3.14159

def truth() -> bool:
    return True

def mapping() -> dict:
    return {
        "status": "completed",
        "count": 10,
        "results": ["item1", "item2"]
    }

def texts() -> list[str]:
    return ["result1", "result2", "result3"]

def mappings() -> list[dict]:
    return [
        {"id": 1, "name": "Item 1"},
        {"id": 2, "name": "Item 2"}
    ]

def nothing() -> None:
    # Perform an action and return None
    print("Operation completed")
    return None

def handle(which: str):
    return globals()[which]()
