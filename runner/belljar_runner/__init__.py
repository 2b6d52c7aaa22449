"""The runner: the Python program inside the sandbox.

It runs cells in `__main__`, calls functions of tools, and reports on one socket. It is no isolation layer: user code
shares this process and can change anything in it, so the host trusts nothing that it sends. The precautions here are
for honest code and honest mistakes: whatever a cell shadows, closes or patches, the next cell still runs.

Modules bind what they need from the standard library when they are imported, in the zygote, before any user code.
"""
