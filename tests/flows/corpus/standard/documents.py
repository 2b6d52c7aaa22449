import configparser
import csv
import email
import email.policy
import html
import io
import json
import plistlib
import tomllib
import xml.dom.minidom
import xml.etree.ElementTree as ET
from email.message import EmailMessage
from html.parser import HTMLParser

rows = list(csv.DictReader(io.StringIO('a,b\n1,"x,y"\n2,"q""q"\n')))
print(rows)
out = io.StringIO()
csv.writer(out).writerows([[1, "a,b"], [None, 'c"d']])
print(repr(out.getvalue()))
root = ET.fromstring("<r><i n='1'>a</i><i n='2'/></r>")
print([(i.get("n"), i.text) for i in root.iter("i")], ET.tostring(root))
print(xml.dom.minidom.parseString("<a><b/></a>").toprettyxml(indent=" "))
print(html.escape("<&\">"), html.unescape("&eacute;&#9731;"))


class Links(HTMLParser):
    def handle_starttag(self, tag, attrs):
        print(tag, attrs)


Links().feed("<a href='x'>t</a>")
message = EmailMessage()
message["Subject"], message["To"] = "Grüße", "a@example.org"
message.set_content("body\n")
message.add_attachment(b"\x00", maintype="application", subtype="octet-stream", filename="x.bin")
parsed = email.message_from_bytes(message.as_bytes(), policy=email.policy.default)
print(parsed["Subject"], [part.get_content_type() for part in parsed.walk()])
print(json.dumps({"ü": [1.5, None, True], "n": float("inf")}, sort_keys=True, indent=1), json.loads('{"a": 1e3}'))
print(tomllib.loads("[a]\nb = 1979-05-27\n"), plistlib.loads(plistlib.dumps({"a": [1]})))
config = configparser.ConfigParser()
config.read_string("[s]\nk = v\n")
print(config["s"]["k"])
