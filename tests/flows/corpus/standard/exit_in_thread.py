import sys
import threading
import time


def late():
    time.sleep(0.1)
    print("the thread is waited for")


threading.Thread(target=late).start()
threading.Thread(target=sys.exit, args=(9,)).start()
print("main ends")
