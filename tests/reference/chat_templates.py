"""Writes chat_templates.json: what transformers' apply_chat_template makes of conversations.

    python3 tests/reference/chat_templates.py          (transformers 5.23, tokenizers 0.23)

The templates have the statements of the published ones that concern messages of text, in another layout, and one line
for those about tools. Each case has: "template", its text; "name" and "system", which heed must recognise; "base" and
"added", a tokenizer of tokenizers_files.json and the special tokens added to it; "chats": [messages,
add_generation_prompt, options, text, ids, mask], where the mask has a 1 for each token of an answer, found by offsets
of the tokenizer.
"""
import itertools
import json
import pathlib

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

TURN = "'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
CHATML = "{% for message in messages %}{{ " + TURN + " }}{% endfor %}" + PROMPT
DEFAULT = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
           "{{ '<|im_start|>system\nYou are a helpful model<|im_end|>\n' }}{% endif %}{{" + TURN + "}}{% endfor %}" +
           PROMPT)
QWEN25 = """{%- if tools %}
    {{- tools | tojson }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a model. Be helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first)
        or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- message.tool_calls | tojson }}
    {%- elif message.role == "tool" %}
        {{- message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- if tools %}
    {{- tools | tojson }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>')
        and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\\n')
                .split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n')
                    + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {{- message.tool_calls | tojson }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}"
          "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
          "message['content'] | trim + '<|eot_id|>' %}"
          "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The first message #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
            + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- message.tool_calls | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
ROLES = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
         "{{ raise_exception('user and assistant in turn') }}{% endif %}"
         "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
         "{% set role = message['role'] %}{% endif %}")
GEMMA_PROMPT = "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
         "{% for message in messages %}" + ROLES + "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + "
         "'<end_of_turn>\n' }}{% endfor %}" + GEMMA_PROMPT)
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    """ + ROLES + """
    {{- '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {{ message['content'] | tojson }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
""" + GEMMA_PROMPT
PLAIN = ("{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}")

LLAMA_TOKENS = ["<|start_header_id|>", "<|end_header_id|>"]
CASES = [("chatml", "", "qwen2", [], CHATML), ("chatml", "You are a helpful model", "smollm", [], DEFAULT),
         ("chatml", "", "llama2", ["<|im_start|>", "<|im_end|>"], CHATML),
         ("chatml", "", "mistral", ["<|im_start|>", "<|im_end|>"], CHATML),
         ("chatml", "You are a model. Be helpful.", "qwen2", [], QWEN25), ("qwen3", "", "qwen2", [], QWEN3),
         ("llama-3", "", "llama3", LLAMA_TOKENS, LLAMA3), ("llama-3.1", "", "llama3", LLAMA_TOKENS, LLAMA31),
         ("gemma", "", "mistral", ["<bos>", "<start_of_turn>", "<end_of_turn>"], GEMMA),
         ("gemma-3", "", "llama2", ["<bos>", "<start_of_turn>", "<end_of_turn>"], GEMMA3),
         ("plain", "", "gpt2", [], PLAIN)]

USER, ASSISTANT = ["Hello", "  What is 12 * 12?\n", "\n\nnaïve 😀\r\n", "a"], [
    "Hi there", " 144.\n", "<think>\nsum\n</think>\n\nIt is so", "\n\nyes </think> no", "for (;;) {\n    x += 1;\n}",
    ""]
SYSTEM = ["Be brief.", " The model\nof the layer. ", ""]


def chats():
    user, assistant = itertools.cycle(USER), itertools.cycle(ASSISTANT)
    system = itertools.cycle(SYSTEM)
    for turns in range(1, 6):
        for with_system in (False, True):
            messages = [{"role": "system", "content": next(system)}] if with_system else []
            for i in range(turns):
                role, source = ("assistant", assistant) if i % 2 else ("user", user)
                messages.append({"role": role, "content": next(source)})
            yield messages
    for answer in ASSISTANT:
        yield [{"role": "user", "content": "a"}, {"role": "assistant", "content": answer}]
    yield [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>b</think>c"},
           {"role": "assistant", "content": "d"}]
    yield [{"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]


def mask(tokenizer, style, text):
    """Whether each token begins at or after the text that precedes an answer, and before the next turn."""
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    answer = [False] * len(offsets)
    close = {"llama-3": "<|eot_id|>", "llama-3.1": "<|eot_id|>", "gemma": "<end_of_turn>",
             "gemma-3": "<end_of_turn>"}.get(style, "<|im_end|>")
    head = {"llama-3": "<|start_header_id|>assistant<|end_header_id|>\n\n", "gemma": "<start_of_turn>model\n"}
    head["llama-3.1"], head["gemma-3"] = head["llama-3"], head["gemma"]
    begin = 0
    while (begin := text.find(head.get(style, "<|im_start|>assistant\n"), begin)) >= 0:
        begin += len(head.get(style, "<|im_start|>assistant\n"))
        end = text.find(close, begin)
        if end < 0:
            break
        for i, (a, b) in enumerate(offsets):
            answer[i] |= b > begin and a < end + len(close)
    return "".join(str(int(a)) for a in answer)


def record(style, system, base, added, template):
    stored = json.loads(pathlib.Path(__file__).with_name("tokenizers_files.json").read_text())
    t = Tokenizer.from_str(stored[base]["file"])
    t.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in added])
    bos = {"llama-3": "<|begin_of_text|>", "llama-3.1": "<|begin_of_text|>", "gemma": "<bos>", "gemma-3": "<bos>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos.get(style), chat_template=template)
    rows = []
    for index, messages in enumerate(chats()):
        prompt = index % 4 in (0, 3)
        options = {"enable_thinking": False} if style == "qwen3" and len(messages) % 2 else {}

        def render(**more):
            return tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, **options, **more)
        try:
            text = render(tokenize=False)
        except Exception:  # refused by the template: Gemma, for roles that do not alternate
            rows.append([messages, prompt, options, None, None, None])
            continue
        row = [messages, prompt, options, text, render(return_dict=False), mask(tokenizer, style, text)]
        if style == "plain":  # each turn is encoded by itself
            row[4] = row[5] = None
        rows.append(row)
    return {"template": template, "name": style, "system": system, "base": base, "added": added, "chats": rows}


def main():
    cases = ",\n".join("{" + ",\n".join(
        f"{json.dumps(k)}: " + ("[" + ",\n".join(map(json.dumps, v)) + "]" if k == "chats" else json.dumps(v))
        for k, v in record(*case).items()) + "}" for case in CASES)
    pathlib.Path(__file__).with_suffix(".json").write_text("[" + cases + "]\n")


main()
