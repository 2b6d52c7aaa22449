import asyncio

async def handle(value: int) -> int:
    """Async handle function."""
    await asyncio.sleep(0.1)
    return value * 2

async def test():
    """Async test function that tests async handle."""
    # Await the async handle function directly
    result = await handle(21)
    assert result == 42, f"Expected 42, got {result}"
    
    return result
