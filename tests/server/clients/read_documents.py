"""Opens documents outside of every sandbox, with the libraries of their readers, and prints their texts."""

import json
import sys

from docx import Document
from pptx import Presentation
from pypdf import PdfReader

docx, pptx, pdf = sys.argv[1:]
print(json.dumps({
    "docx": [paragraph.text for paragraph in Document(docx).paragraphs]
    + [cell.text for table in Document(docx).tables for row in table.rows for cell in row.cells],
    "pptx": [shape.text_frame.text for slide in Presentation(pptx).slides for shape in slide.shapes],
    "pdf": [page.extract_text().strip() for page in PdfReader(pdf).pages],
}))
