"""Verbs that look into one model: heads, attention."""

from pathlib import Path
from typing import Annotated

import typer

from ..files import check_writable
from ..shipped import REFERENCE, model_source
from .models import AnyModel, open_encoder, open_tokenizer
from .options import Field, HeldOut, Json, LengthRead, PageFolder, Scheme, app, emit


@app.command()
def heads(
    model: AnyModel,
    corpus: HeldOut = None,
    field: Field = "text",
    documents: Annotated[int, typer.Option(help="Windows of full length to read; DSTG takes 500.", min=10)] = 500,
    ablate: Annotated[
        int,
        typer.Option(
            help="Windows whose masked-language loss is measured with each term taken out, averaged or shuffled, and "
            "each stream: one pass for every term, block and head. 0: none.",
            min=0,
        ),
    ] = 0,
    length: LengthRead = None,
    out: PageFolder = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """What drives each attention head: its terms by KL (DSTG equation 4), where it looks, what it is worth."""
    from ..study.heads import heads_text, run_heads

    encoder, tokenizer = open_encoder(model, scheme, head=ablate > 0), open_tokenizer(model)
    where = Path(model_source(model))
    found = run_heads(
        encoder,
        tokenizer,
        where,
        corpus=corpus,
        field=field,
        documents=documents,
        length=length,
        ablated=ablate,
        out=out,
    )
    written = f"\nThe report is {found['report']}: open it in a browser." if found["report"] else ""
    emit(found, as_json, heads_text(found) + written)


@app.command()
def attention(
    model: AnyModel,
    text: Annotated[list[str] | None, typer.Option(help="A text to look at; may be given again.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="A file that holds one text; may be given again.")] = None,
    repeat: Annotated[
        bool,
        typer.Option(
            "--repeat", help="Also a made-up text of the shape A + B + A (DSTG figure 3); alone where no text is given."
        ),
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are longer than the model reads.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("attention.html"),
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """A page of what every head looks at in a text, with every term of the scores apart (DSTG figure 3)."""
    from ..analysis.texts import LEVELS, most_tokens, repeated_text, shown_tokens, text_maps
    from ..analysis.who import Who
    from ..report.explorer import ExplorerModel, ExplorerText
    from ..report.pages import write_attention_page
    from ..study.learned import learning_records, not_learned
    from ..study.machine import versions

    texts = _texts(text or [], file or [])
    made_up = [repeated_text()] if repeat or not texts else []
    texts += made_up
    if out.is_dir():
        raise ValueError(f"{out} is a folder. Give the name of the page: --out {out / 'attention.html'}.")
    check_writable(out)
    encoder, tokenizer = open_encoder(model, scheme), open_tokenizer(model)
    most = most_tokens(encoder)
    found, maps = [], None
    for title, words in texts:
        ids = tokenizer(words, verbose=False)["input_ids"]
        if not len(ids) or len(ids) <= tokenizer.num_special_tokens_to_add():
            raise ValueError(f"The text “{title}” has no token. Give some words.")
        if most is not None and len(ids) > most:
            if not truncate and (title, words) not in made_up:
                raise ValueError(
                    f"{model} has {most} positions; the text “{title}” has {len(ids)} tokens. Shorten it, or cut it "
                    "there: --truncate."
                )
            ids = tokenizer(words, truncation=True, max_length=most, verbose=False)["input_ids"]
        maps = text_maps(encoder, ids, shown_tokens(tokenizer, ids), title)
        found.append(ExplorerText(title, maps.tokens, maps.levels()))
    assert maps is not None
    config = encoder.config
    name, folder = _name(model), Path(model_source(model))
    unlearned = not_learned(learning_records(tokenizer, folder, Who(name)), name)
    facts = [
        ("Shipped model" if model == REFERENCE else "Folder" if Path(model).is_dir() else "Hub name", model),
        ("Class", type(encoder).__name__),
        ("Preset", str(getattr(config, "preset", "") or "")),
        ("Positions", str(most or "any")),
        ("Terms", ", ".join(maps.weights)),
        ("Learned", unlearned),
    ]
    path = write_attention_page(
        out,
        ExplorerModel(name, None, found, LEVELS, maps.missing),
        facts=[f for f in facts if f[1]],
        versions=list(versions().items()),
    )
    result = {
        "report": str(path),
        "tokens": [len(t.tokens) for t in found] if len(found) > 1 else len(found[0].tokens),
        "terms": list(maps.weights),
        "missing": maps.missing or None,
        "not_learned": unlearned or None,
        "layers": len(maps.weights["total"]),
        "heads": maps.weights["total"].shape[1],
        "bytes": path.stat().st_size,
    }
    said = "".join(f"{line.replace('`', '')}\n" for line in (unlearned, maps.missing) if line)
    emit(result, as_json, f"{said}The page is {path} ({result['bytes'] / 1e6:.1f} MB): open it in a browser.")


def _name(model: str) -> str:
    """What a page calls the model: the folder's name, of a study's model that and its seed."""
    path = Path(model).resolve() if Path(model).is_dir() else Path(model)
    return f"{path.parent.name}, {path.name.replace('-', ' ')}" if path.name.startswith("seed-") else path.name


def _texts(given: list[str], files: list[Path]) -> list[tuple[str, str]]:
    """Title and words of each text, in the order given."""
    found = []
    for number, words in enumerate(given, 1):
        if not words.strip():
            raise ValueError(f"--text number {number} is empty. Give some words.")
        title = " ".join(words.split())
        found.append((title if len(title) <= 40 else f"{title[:39]}…", words))
    for path in files:
        try:
            words = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error.strerror}). Give a file that holds one text.") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is no text in UTF-8. Convert it first.") from None
        if not words.strip():
            raise ValueError(f"{path} is empty. Give a file that holds some words.")
        found.append((path.name, words))
    return found
