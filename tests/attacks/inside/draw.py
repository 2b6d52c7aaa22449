def draw():
    import multiprocessing, os, random, secrets, sqlite3, ssl, sys, tempfile, uuid
    drawn = {
        "random": random.random(),
        "random.Random": random.Random().getrandbits(64),
        "urandom": os.urandom(8).hex(),
        "secrets": secrets.token_hex(8),
        "uuid1": str(uuid.uuid1()),
        "uuid4": str(uuid.uuid4()),
        "openssl": ssl.RAND_bytes(8).hex(),
        "tempfile": next(tempfile._get_candidate_names()),
        "authkey": bytes(multiprocessing.current_process().authkey).hex(),
        "sqlite": sqlite3.connect(":memory:").execute("select hex(randomblob(8))").fetchone()[0],
    }
    if "numpy" in sys.modules:
        import numpy
        drawn["numpy"] = numpy.random.rand()
        drawn["numpy.bytes"] = numpy.random.bytes(8).hex()
        drawn["numpy.default_rng"] = numpy.random.default_rng().random()
    return drawn
