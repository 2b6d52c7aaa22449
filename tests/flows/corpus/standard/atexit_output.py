import atexit
import os


@atexit.register
def leave():
    with open("left.txt", "w") as file:
        file.write("x")
    print("exists", os.path.exists("left.txt"))
    os.remove("left.txt")


print("end of script")
