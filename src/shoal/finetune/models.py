"""The initial model: a folder, a name on the Hugging Face hub, or a tiny one made here. Only safetensors are loaded."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.errors import MissingFile, UserError
from shoal.validate import nearest

TINY = "tiny"  # the name of the tiny model, which needs no download
CONFIG, TOKENIZER, WEIGHTS, INDEX = "config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"
DOWNLOADED_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
END = "<|endoftext|>"
TINY_CONTEXT, TINY_PARAMETERS = 256, 500_000  # about
TINY_VOCABULARY = 512  # of the tiny model: bytes, and the most frequent pieces of the texts
HUB_TIMEOUT = "3"  # seconds for the hub to answer, unless the user has set another number


def find(name: str, say: Callable[[str], Any] = lambda text: None) -> Path:
    """The folder of a model, given that folder or a name on the hub, which is contacted only if files are missing."""
    if not name.strip():
        raise UserError("--model takes a folder or a name on the hub; got an empty text")
    path = Path(name).expanduser()
    if path.is_dir():
        lacking = missing_files(path)
        if lacking:
            raise UserError(f"{path} is not a model: it lacks {', '.join(lacking)}; {_holds(path)}")
        return path
    if path.is_file():
        raise UserError(f"--model takes a folder or a name on the hub; {path} is a file: give the folder it is in")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise no_folder(path)
    return _from_hub(name, say)


def no_folder(path: Path) -> MissingFile:
    beside = [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
    return MissingFile(f"there is no folder {path}{nearest(path.name, beside)}")


def missing_files(folder: Path) -> list[str]:
    """The files that a folder lacks to be a model; empty if it is one."""
    lacking = [] if (folder / CONFIG).is_file() else [CONFIG]
    if not (folder / WEIGHTS).is_file():
        lacking += _missing_shards(folder) if (folder / INDEX).is_file() else [WEIGHTS]
    words = all((folder / name).is_file() for name in ("vocab.json", "merges.txt"))
    if not (words or (folder / TOKENIZER).is_file() or (folder / "tokenizer.model").is_file()):
        lacking.append(TOKENIZER)
    return lacking


def _missing_shards(folder: Path) -> list[str]:
    try:
        shards = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError):
        return [f"a readable {INDEX}"]
    return [shard for shard in shards if not (folder / shard).is_file()]


def _holds(folder: Path) -> str:
    found = sorted(entry.name for entry in folder.iterdir())
    if any(name.startswith("pytorch_model") for name in found):
        return "its weights are pickled, and Shoal loads no pickles: save them as safetensors"
    if not found:
        return "the folder is empty"
    models = [name for name in found if (folder / name).is_dir() and not missing_files(folder / name)]
    if models:
        return f"did you mean {folder / models[0]}?"
    return f"it holds {', '.join(found[:5])}{', ...' * (len(found) > 5)}"


def _from_hub(name: str, say: Callable[[str], Any]) -> Path:
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", HUB_TIMEOUT)
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", HUB_TIMEOUT)
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        cached = Path(snapshot_download(name, allow_patterns=DOWNLOADED_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        cached = None
    except HFValidationError:
        raise UserError(f"{name!r} is neither a folder nor a name that the hub could have") from None
    lacking = missing_files(cached) if cached else [CONFIG, WEIGHTS, TOKENIZER]
    if cached and not lacking:
        return cached
    place = cached or Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    reason = "HF_HUB_OFFLINE is set"
    if not constants.HF_HUB_OFFLINE:
        say(f"downloading {name} from the hub")
        try:
            folder = Path(snapshot_download(name, allow_patterns=DOWNLOADED_FILES))
        except RepositoryNotFoundError:
            raise UserError(f"there is no folder {name} here, and no public model {name!r} on the hub") from None
        except Exception as error:  # of several network libraries
            reason = f"the hub cannot be reached ({_short(error)})"
        else:
            if missing_files(folder):
                raise UserError(f"{name} on the hub lacks {', '.join(missing_files(folder))}; give another model")
            return folder
    raise MissingFile(
        f"model {name!r} is not here: there is no folder of that name, {place} lacks {', '.join(lacking)}, and "
        f"{reason}. Give --model a folder that holds them, or --model {TINY}"
    )


def _short(error: BaseException) -> str:
    """The first line of the innermost cause of an error, shortened."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return (str(error).splitlines() or [type(error).__name__])[0][:100]


def silence_libraries() -> None:
    """Turn off the warnings and progress bars of the libraries."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def make_tiny(folder: Path, texts: list[str], context: int, seed: int) -> None:
    """A small GPT-2 with random weights, and a byte-pair tokenizer trained on these texts."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=TINY_VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, bos_token=END, model_max_length=context)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=words.get_vocab_size(), n_positions=context, n_embd=128, n_layer=2, n_head=4,
        activation_function="gelu_pytorch_tanh", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)


def load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise UserError(f"the tokenizer in {folder} cannot be read: {_short(error)}") from None
    if tokenizer.eos_token_id is None:
        raise UserError(f"the tokenizer in {folder} has no end-of-text token; use another model")
    return tokenizer


def load_config(folder: Path) -> Any:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise UserError(f"{folder / CONFIG} is not a model configuration: {_short(error)}") from None
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UserError(f"{folder} holds a model of type {config.model_type!r}, which is not a causal language model")
    return config


def load_model(folder: Path, dropout: float | None = None) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    config = load_config(folder)
    if dropout is not None:
        for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout", "dropout"):
            if isinstance(getattr(config, name, None), float | int):
                setattr(config, name, dropout)
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"the weights in {folder} cannot be read: {_short(error)}") from None
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        raise UserError(f"the weights in {folder} are damaged or cut off: {_short(error)}") from None


def longest_context(config: Any, tokenizer: Any) -> int:
    """The largest number of tokens that the model can process."""
    known = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    return int(known) if known and known < 1 << 20 else 1024


def count_parameters(folder: Path) -> int:
    """The number of parameters, from the headers of the files, without reading the weights."""
    from safetensors import safe_open

    count = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        except Exception as error:
            raise UserError(f"{path} is damaged or cut off: {_short(error)}") from None
        count += sum(map(math.prod, shapes))
    return count
