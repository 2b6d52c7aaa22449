import base64
import binascii
import hashlib
import hmac
import secrets
import uuid
import zlib

for name in ("md5", "sha1", "sha256", "sha3_512", "blake2b", "shake_128"):
    digest = hashlib.new(name, b"data")
    print(name, digest.hexdigest(8) if name == "shake_128" else digest.hexdigest())
print(hmac.new(b"key", b"message", "sha256").hexdigest())
print(hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 1000).hex(), hashlib.scrypt(b"p", salt=b"s", n=16, r=8, p=1).hex()[:16])
print(base64.b64encode(b"\x00\xff"), binascii.crc32(b"x"), zlib.adler32(b"x"), base64.a85encode(b"abcd"))
print(uuid.uuid5(uuid.NAMESPACE_DNS, "example.org"), uuid.uuid4().version, uuid.uuid1().version, len(secrets.token_hex()))
