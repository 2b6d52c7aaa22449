import os

errors, files = [], 0
for root, directories, names in os.walk("/", onerror=errors.append):
    directories[:] = [name for name in directories if os.path.join(root, name) not in ("/proc", "/sys", "/work", "/root", "/home", "/usr", "/opt", "/tmp")]
    files += len(names)
print(files > 0, all(isinstance(error, PermissionError) for error in errors))
