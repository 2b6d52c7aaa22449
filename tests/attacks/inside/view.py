# What there is to see, in lines that are the same on every host: see manifest.txt.
mount_lines, top, covered = [], {}, []
for line in open("/proc/self/mountinfo"):
    left, right = line.rstrip("\n").split(" - ")
    fields, (kind, _, options) = left.split(), right.split(" ", 2)
    point, flags = fields[4], fields[5].split(",")
    if point in top:
        covered.append((point, top[point][0]))
    top[point] = (kind, [flag for flag in ("ro", "rw", "nosuid", "nodev", "noexec") if flag in flags], options)

binds = set()
for point, (kind, flags, options) in top.items():
    if point.startswith("/dev/"):
        # What else the host has said of its device nodes is the host's business.
        kind, flags = "device", flags[:1]
    elif kind == "proc":
        flags += [option for option in options.split(",") if option.startswith("subset=")]
    elif kind != "tmpfs" or point not in ("/", "/workspace", "/tmp"):
        kind = "bind"
        binds.add(point)
    print("mount", point, kind, ",".join(flags))
for point, kind in covered:
    print("covered", point, kind)


def kind_of(path, mode):
    if stat.S_ISLNK(mode):
        # Where the links of a merged /usr lead is the host's business.
        return "link " + ("" if path.count("/") == 1 else os.readlink(path))
    if stat.S_ISCHR(mode):
        return "device %o %s" % (stat.S_IMODE(mode), os.stat(path).st_rdev)
    return "%s %o" % ("directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other", stat.S_IMODE(mode))


def visit(directory):
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        status = os.lstat(path)
        if path in binds:
            print("entry", path, "bind")
            continue
        print("entry", path, kind_of(path, status.st_mode).strip())
        if stat.S_ISDIR(status.st_mode) and path != "/proc":
            visit(path)


visit("/")

# Over everything, binds included: where something can be made, and what is no plain file. Names of the root's own
# directories may be covered by a mount, so that the directory alone does not tell what they are.
for directory, directories, files in os.walk("/"):
    if directory == "/":
        directories.remove("proc")
    if directory.count("/") <= 3 and outcome(lambda: (create(directory + "/.probe"), os.unlink(directory + "/.probe"))) == "ok":
        print("writable", directory)
    with os.scandir(directory) as entries:
        for entry in entries:
            may_be_covered = directory.count("/") <= 2
            plain = stat.S_ISREG(os.lstat(entry.path).st_mode) if may_be_covered else entry.is_file()
            if not (plain or entry.is_symlink() or entry.is_dir()):
                print("special", entry.path)
                if outcome(lambda: os.close(os.open(entry.path, os.O_WRONLY))) == "ok":
                    print("writable", entry.path)
