import os
import resource
import time

print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 64), hard))
try:
    files = [open("/dev/null") for _ in range(100)]
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
start = time.process_time()
while time.process_time() - start < 0.05:
    pass
print(time.monotonic() > 0, time.perf_counter_ns() > 0, time.thread_time() > 0, os.times().user >= 0)
print(time.get_clock_info("monotonic").implementation)
