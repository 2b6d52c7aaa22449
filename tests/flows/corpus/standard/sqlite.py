import os
import sqlite3
import threading

path = "corpus-sqlite.db"
with sqlite3.connect(path) as db:
    db.execute("pragma journal_mode=wal")
    db.execute("create table t (id integer primary key, name text)")
    db.executemany("insert into t (name) values (?)", [("a",), ("ü",), (None,)])
print(db.execute("select id, name from t order by id").fetchall())


def count():
    print(sqlite3.connect(path).execute("select count(*) from t").fetchone())


thread = threading.Thread(target=count)
thread.start()
thread.join()
db.create_function("twice", 1, lambda x: 2 * x)
print(db.execute("select twice(21)").fetchone())
db.close()
for suffix in ("", "-wal", "-shm"):
    if os.path.exists(path + suffix):
        os.remove(path + suffix)
memory = sqlite3.connect(":memory:")
memory.execute("create virtual table f using fts5(x)")
memory.execute("insert into f values ('full text search')")
print(memory.execute("select * from f where f match 'text'").fetchall())
