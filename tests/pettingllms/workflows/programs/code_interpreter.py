"""Code interpreter, openai: a model writes lines of arithmetic, and sees what they give."""

import ast
import operator

from openai import OpenAI

client = OpenAI()
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(node):
    if isinstance(node, ast.BinOp):
        return SIGNS[type(node.op)](value(node.left), value(node.right))
    return ast.literal_eval(node)


def main():
    messages = [
        {"role": "system", "content": "Answer, or write CODE and arithmetic."},
        {"role": "user", "content": input("Question: ")},
    ]
    for _ in range(4):
        text = client.chat.completions.create(model="coder", messages=messages).choices[0].message
        messages.append({"role": "assistant", "content": text.content})
        if not text.content.startswith("CODE"):
            return text.content
        try:
            told = str(value(ast.parse(text.content[4:].strip(), mode="eval").body))
        except (SyntaxError, ValueError, KeyError, TypeError) as error:
            told = f"{type(error).__name__}: {error}"
        messages.append({"role": "user", "content": told})
