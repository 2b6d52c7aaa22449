import os
import signal
import threading
import time


class Alarm(Exception):
    pass


def on_alarm(signum, frame):
    raise Alarm


signal.signal(signal.SIGALRM, on_alarm)
signal.alarm(1)
try:
    time.sleep(20)
except Alarm:
    print("alarm")
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    while True:
        pass
except Alarm:
    print("timer")
got = []
signal.signal(signal.SIGUSR1, lambda *args: got.append(args[0]))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
print(got)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupt")
print(callable(signal.getsignal(signal.SIGINT)), signal.getsignal(signal.SIGTERM))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGCHLD))
thread = threading.Thread(target=signal.pthread_kill, args=(threading.main_thread().ident, signal.SIGUSR1))
thread.start()
thread.join()
print(len(got), signal.strsignal(11))
