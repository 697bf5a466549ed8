"""A tiny random language model with a tokenizer, made where it is needed: `make(folder)`."""
import pathlib

VOCABULARY = 512


def make(folder):
    """Writes a two-layer Llama with random weights and a word-level tokenizer (`t0 t1 ...`) into `folder`."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    folder = pathlib.Path(folder)
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=0,
                         eos_token_id=1, initializer_range=0.3)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0", bos_token="t0", eos_token="t1")
    tokenizer.save_pretrained(folder)
    return folder


def prompts(count, length):
    """Token ids of `count` different prompts."""
    import random
    pick = random.Random(7)
    return [[pick.randrange(2, VOCABULARY) for _ in range(length)] for _ in range(count)]
