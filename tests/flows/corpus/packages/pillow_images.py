from PIL import Image, ImageDraw, ImageFont

image = Image.new("RGB", (40, 20), "white")
ImageDraw.Draw(image).text((2, 2), "hi", fill="black", font=ImageFont.load_default())
for name in ("a.png", "a.jpg", "a.webp", "a.gif"):
    image.save(name)
    with Image.open(name) as loaded:
        print(name, loaded.size, loaded.format)
print(image.resize((4, 2)).getpixel((3, 1)))
