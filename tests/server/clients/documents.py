import csv
import json
import shutil
import struct
import subprocess
import wave


def parse(path):
    with open(path, newline="") as file:
        return [{"name": row["name"], "amount": int(row["amount"])} for row in csv.DictReader(file)]


def write_docx(rows):
    from docx import Document

    document = Document()
    document.add_heading("Amounts", 1)
    table = document.add_table(rows=0, cols=2)
    for row in rows:
        cells = table.add_row().cells
        cells[0].text, cells[1].text = row["name"], str(row["amount"])
    document.save("report.docx")


def write_pptx(rows):
    from pptx import Presentation

    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Amounts"
    slide.placeholders[1].text = ", ".join(f"{row['name']}: {row['amount']}" for row in rows)
    presentation.save("report.pptx")


def write_pdf(rows):
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas("report.pdf")
    for number, row in enumerate(rows):
        canvas.drawString(72, 720 - 20 * number, f"{row['name']}: {row['amount']}")
    canvas.save()


def generate_media(path):
    with wave.open(path, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"".join(struct.pack("<h", n % 100) for n in range(8000)))


def probe(program, path):
    found = shutil.which(program)
    if found is None:
        raise RuntimeError(f"{program} is not available in this sandbox; use an image that has it")
    shown = ["-v", "quiet", "-print_format", "json", "-show_format", path]
    return json.loads(subprocess.run([found, *shown], capture_output=True, check=True).stdout)


def run(input):
    rows = parse(input["table"])
    write_docx(rows)
    write_pptx(rows)
    write_pdf(rows)
    generate_media("tone.wav")
    with wave.open("tone.wav", "rb") as sound:
        seconds = sound.getnframes() / sound.getframerate()
    try:
        probed = probe(input["program"], "tone.wav")["format"]["format_name"]
    except RuntimeError as error:
        probed = str(error)
    return {"rows": len(rows), "total": sum(row["amount"] for row in rows), "seconds": seconds, "probed": probed}
