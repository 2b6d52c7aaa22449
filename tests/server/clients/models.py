import time

import anthropic
import openai
from google import genai

question = [{"role": "user", "content": "Who are you?"}]


def ask_openai(client):
    return client.chat.completions.create(model="m", messages=question).choices[0].message.content


def ask_anthropic(client):
    return client.messages.create(model="m", max_tokens=9, messages=question).content[0].text


def ask_gemini(client):
    return client.models.generate_content(model="m", contents="Who are you?").text


def listen(texts):
    heard = [(text, time.monotonic()) for text in texts if text]
    return {"streamed": [text for text, _ in heard], "seconds": heard[-1][1] - heard[0][1]}


def stream_openai():
    for part in openai_client.chat.completions.create(model="m", messages=question, stream=True):
        yield part.choices[0].delta.content


def stream_anthropic():
    with client.anthropic.messages.stream(model="m", max_tokens=9, messages=question) as stream:
        yield from stream.text_stream


said = {}
for name, ask, ready, own in [
    ("openai", ask_openai, openai_client, openai.OpenAI()),
    ("anthropic", ask_anthropic, anthropic_client, anthropic.Anthropic()),
    ("gemini", ask_gemini, gemini_client, genai.Client()),
]:
    said[name] = {"global": ask(ready), "attribute": ask(getattr(client, name)), "own": ask(own)}
said["openai"] |= listen(stream_openai())
said["anthropic"] |= listen(stream_anthropic())
said
