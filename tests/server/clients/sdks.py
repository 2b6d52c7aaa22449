import os


def ask_groq(messages):
    from groq import Groq

    return Groq().chat.completions.create(model="m", messages=messages).choices[0].message.content


def ask_cohere(messages):
    import cohere

    return cohere.ClientV2().chat(model="m", messages=messages).message.content[0].text


def ask_mistral(messages):
    from mistralai.client import Mistral

    client = Mistral(api_key=os.environ["MISTRAL_API_KEY"], server_url=os.environ["MISTRAL_BASE_URL"])
    return client.chat.complete(model="m", messages=messages).choices[0].message.content


def ask_together(messages):
    from together import Together

    return Together().chat.completions.create(model="m", messages=messages).choices[0].message.content


def run(input):
    messages = [{"role": "user", "content": "Who are you?"}]
    asked = {"groq": ask_groq, "cohere": ask_cohere, "mistral": ask_mistral, "together": ask_together}
    names = ["GROQ_API_KEY", "CO_API_KEY", "COHERE_API_KEY", "MISTRAL_API_KEY", "TOGETHER_API_KEY"]
    said = {name: ask(messages) for name, ask in asked.items() if name in input["providers"]}
    return {"said": said, "keys": {name: os.environ.get(name) for name in names}}
