# The seed leaves the function and the expected value to the reader; the test is as written there.
expected_value = "test 42"


def handle(name: str, number: int) -> str:
    if number < 0:
        raise ValueError("number must not be negative")
    return f"{name} {number}"

def test():
    """Comprehensive test coverage."""
    # Test normal cases
    result1 = handle("test", 42)
    assert result1 == expected_value, "Normal case failed"
    
    # Test edge cases
    result2 = handle("", 0)
    assert result2 is not None, "Edge case failed"
    
    # Test error conditions
    try:
        handle("invalid", -1)
        assert False, "Should have raised ValueError"
    except ValueError:
        pass  # Expected
    
    # Return a sample result for display
    return handle("sample", 100)
