import ssl

context = ssl.create_default_context()
print(context.verify_mode.name, context.check_hostname, len(context.get_ca_certs()) > 0)
print(len(ssl.RAND_bytes(16)), ssl.HAS_TLSv1_3)
left, right = ssl.MemoryBIO(), ssl.MemoryBIO()
client = context.wrap_bio(left, right, server_hostname="example.com")
try:
    client.do_handshake()
except ssl.SSLWantReadError:
    print("hello sent", right.pending > 0)
