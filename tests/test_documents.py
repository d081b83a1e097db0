"""Files that anyone may have written: read as objects, or refused with file, line and reason."""

import io

import pytest

from agent.commands.documents import MAX_JSON_BYTES, MAX_YAML_BYTES, read_documents
from agent.commands.yaml_values import MAX_VALUES, InputError


def read(text):
    data = text if isinstance(text, bytes) else text.encode()
    return read_documents("-", io.BytesIO(data))


def refusal(text):
    with pytest.raises(InputError) as refused:
        read(text)
    return str(refused.value)


LAUGHS = 'a: &a ["lol","lol","lol","lol","lol","lol","lol","lol","lol"]\n' + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(LAUGHS, "7: aliases make more than 1000000 values of it", id="aliases of aliases"),
        pytest.param("a: &a [*a]", "1: an alias holds itself", id="an alias of itself"),
        pytest.param("a:\n\tb: 1\n", "2: is indented with a tab; YAML takes spaces alone", id="tab"),
        pytest.param("a: 1\nb: 2\na: 3\n", "3: key a is given twice in one object", id="duplicate key"),
        pytest.param(
            '{\n"a": 1,\n"b": {"c": 1,\n"c": 2}}',
            "4: key c is given twice in one object",
            id="JSON duplicate",
        ),
        pytest.param("[" * 90_000, "1: is nested deeper than 100 levels", id="deep JSON"),
        pytest.param(
            '{"a":' * 500 + "1" + "}" * 500, "1: is nested deeper than 100 levels", id="deep closed JSON"
        ),
        pytest.param("\n" + "- " * 200 + "1", "2: is nested deeper than 100 levels", id="deep YAML"),
        pytest.param("- " * 5000, "1: exceeded maximum nesting depth", id="deeper YAML"),
        pytest.param(
            "a: !!python/object/apply:os.system [ls]",
            "1: has the tag tag:yaml.org,2002:python/object/apply:os.system, which is not read",
            id="a tag that runs code",
        ),
        pytest.param(
            "a: !!binary aGk=", "1: has the tag tag:yaml.org,2002:binary, which is not read", id="binary"
        ),
        pytest.param(
            "x: &x {a: 1}\ny:\n  <<: *x\n",
            "3: merge keys (<<) are not read; write the fields out",
            id="merge key",
        ),
        pytest.param("1: a", "1: the key 1 is not text; write it in quotes", id="number as key"),
        pytest.param(
            "? [a]\n: b", "1: the key a collection is not text; write it in quotes", id="list as key"
        ),
        pytest.param("a: \0", "1: holds a NUL character, so it is no YAML or JSON", id="NUL"),
        pytest.param(
            "a: 1\nb: \x01", "2: holds a character that YAML does not allow", id="control character"
        ),
        pytest.param(b"a: 1\n\xff\xfe", "2: is not UTF-8 text", id="not UTF-8"),
        pytest.param(
            "a: " + "9" * 10_000, "1: 99999999999999999999… is no number that can be used", id="digits"
        ),
        pytest.param('{"a": NaN}', "1: NaN is no JSON number", id="NaN"),
        pytest.param("- 1", "1: holds a list where an object is expected", id="a list of numbers"),
        pytest.param("hello", "1: holds text where an object is expected", id="text"),
        pytest.param(
            "kind: List\nitems: null\n", "2: items is null where a list is expected", id="null items"
        ),
        pytest.param(
            '{"kind": "List", "items": [\nnull]}',
            "2: items[0] is null where an object is expected",
            id="null item",
        ),
        pytest.param('{"a": 1,\n]', "2: Expecting property name enclosed in double quotes", id="broken JSON"),
        pytest.param("a: [1\nb: 2", "2: did not find expected ',' or ']'", id="broken YAML"),
    ],
)
def test_a_hostile_or_broken_text_is_refused_with_line_and_reason(text, message):
    assert refusal(text) == f"standard input:{message}"


def test_a_text_beyond_the_bound_is_refused_before_it_is_parsed():
    assert refusal(b" " * (MAX_JSON_BYTES + 1)) == "standard input:1: is larger than the 64 MiB that are read"
    large = "a: 1\n" + "# comment\n" * (MAX_YAML_BYTES // 5)
    assert refusal(large) == (
        "standard input:1: 15 MiB of YAML are more than the 8 MiB that are read; "
        "JSON may be larger (kubectl get -o json)"
    )


def test_a_text_of_too_many_values_is_refused_before_a_tree_is_built():
    assert (
        refusal("a: [" + "1," * (MAX_VALUES + 5) + "]")
        == f"standard input:1: holds more than {MAX_VALUES} values"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent.yaml", "No such file or directory"), (".", "Is a directory")],
)
def test_a_file_that_cannot_be_read_is_named(name, reason, tmp_path):
    path = tmp_path / name
    with pytest.raises(InputError) as refused:
        read_documents(str(path), io.BytesIO())
    assert str(refused.value) == f"{path}: {reason}"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("a: 1\n---\n---\nb: 2\n", [{"a": 1}, {"b": 2}], id="documents, an empty one left out"),
        pytest.param('{"a": 1}\n{"b": 2}', [{"a": 1}, {"b": 2}], id="JSON, one after the other"),
        pytest.param('[{"a": 1}]', [{"a": 1}], id="JSON list"),
        pytest.param("{a: 1}", [{"a": 1}], id="YAML in flow style"),
        pytest.param("kind: List\nitems: [{a: 1}, {b: 2}]", [{"a": 1}, {"b": 2}], id="a List"),
        pytest.param(
            "apiVersion: v1\nkind: NodeList\nitems: [{metadata: {name: n}}]",
            [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}],
            id="a typed list",
        ),
        pytest.param(
            "a: 2026-11-30\nb: 0x10\nc: 1.5\nd: ~\ne: true",
            [{"a": "2026-11-30", "b": 16, "c": 1.5, "d": None, "e": True}],
            id="scalars; a date is text",
        ),
        pytest.param("x: &x [1]\ny: *x", [{"x": [1], "y": [1]}], id="a few aliases"),
        pytest.param("\ufeffa: 1", [{"a": 1}], id="byte order mark"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_objects_are_read_from_yaml_and_json(text, values):
    assert [document.value for document in read(text)] == values


YAML = """\
kind: List
items:
- kind: A
- kind: B
  spec:
    formats:
    - config:
        nvidia-a100.x:
          size: 1
    limits: {"nvidia.com/gpu": 1}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 4),
        ("spec.formats[0].config.nvidia-a100.x.size", 9),
        ("spec.limits[nvidia.com/gpu]", 10),
        ("spec.formats[0].absent.size", 7),
        ("spec.formats[7]", 6),
    ],
)
def test_a_path_leads_to_its_line_however_its_keys_are_spelt(path, line):
    assert read(YAML)[1].at(path) == f"standard input:{line}"


def test_a_path_in_json_leads_to_its_line_too():
    documents = read('{"kind": "A"}\n{\n\t"kind": "B",\n\t"spec": {\n\t\t"x": 1}}')
    assert documents[1].at("spec.x") == "standard input:5"
