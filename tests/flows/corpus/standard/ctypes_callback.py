import ctypes
import ctypes.util

libc = ctypes.CDLL(None)
print(libc.abs(-5), ctypes.util.find_library("c"))
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
numbers = (ctypes.c_int * 5)(3, 1, 4, 1, 5)
libc.qsort(numbers, 5, ctypes.sizeof(ctypes.c_int), compare(lambda a, b: a[0] - b[0]))
print(list(numbers))


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int8), ("b", ctypes.c_int64)]


print(ctypes.sizeof(Pair), bytes(Pair(1, 2)))
buffer = ctypes.create_string_buffer(16)
libc.snprintf(buffer, 16, b"%d-%s", 7, b"x")
print(buffer.value)
libm = ctypes.CDLL("libm.so.6")
libm.cos.restype, libm.cos.argtypes = ctypes.c_double, [ctypes.c_double]
print(libm.cos(0.0))
