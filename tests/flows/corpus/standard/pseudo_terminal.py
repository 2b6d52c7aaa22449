import os
import pty
import tty

leader, follower = pty.openpty()
tty.setraw(follower)
os.write(leader, b"typed\n")
print(os.read(follower, 100), os.isatty(follower))
