"""words has an object that all ranks have alike, and grows. The first start leaves after a checkpoint."""

import os

import holdfast

words = {}
with holdfast.Session(program="words", elastic=True) as hf:
    hf.protect_state("words", lambda: words, words.update, replicated=True)
    steps = hf.steps(8, every=4)
    for step in steps:
        if step == 4 and hf.restored:
            os.write(1, f"words: begins with {words['text']}\n".encode())
        words["text"] = "x" * (step + 1)
    if not hf.restored:
        hf.wait()
        os._exit(0)
