"""The Python program inside the walls.

It runs cells in `__main__`, calls functions of tools, and reports on one socket; it is no wall itself. User code shares
this process and can change anything in it, so the host believes none of what it says. The care taken here is for honest
code and honest mistakes: whatever a cell shadows, closes or patches, the next cell still runs.

Modules bind what they need from the standard library when they are imported, in the zygote, before any user code.
"""
