import os

told = {"variables": [name for name in os.environ if name.endswith("API_KEY")]}
for name, ready in [("openai", openai_client), ("anthropic", anthropic_client), ("gemini", gemini_client)]:
    try:
        ready.models
    except RuntimeError as error:
        told[name] = str(error)
told
