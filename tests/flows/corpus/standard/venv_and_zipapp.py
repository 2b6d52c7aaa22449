import os
import shutil
import subprocess
import sys
import zipapp

os.makedirs("corpus-app")
with open("corpus-app/__main__.py", "w") as file:
    file.write("print('from a zip')\n")
zipapp.create_archive("corpus-app", "corpus.pyz")
print(subprocess.run([sys.executable, "corpus.pyz"], capture_output=True, text=True).stdout)
print(subprocess.run([sys.executable, "-m", "json.tool"], input='{"a":1}', capture_output=True, text=True).stdout)
print(subprocess.run([sys.executable, "-m", "timeit", "-n1", "-r1", "pass"], capture_output=True).returncode)
shutil.rmtree("corpus-app")
os.remove("corpus.pyz")
