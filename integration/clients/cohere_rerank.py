"""Cohere's own Python clients, of both versions of its API, order documents; prints what they got as JSON."""

import json
import sys

import cohere


def main(url: str, key: str, query: str, *documents: str) -> None:
    first = cohere.Client(api_key=key, base_url=url)
    second = cohere.ClientV2(api_key=key, base_url=url)
    as_objects = [{"text": document} for document in documents]
    old = first.rerank(model="bert-rank", query=query, documents=as_objects, return_documents=True)
    new = second.rerank(model="bert-rank", query=query, documents=list(documents), top_n=2)
    # Names of Cohere's models mean what the network has.
    named = second.rerank(model="rerank-v3.5", query=query, documents=list(documents), top_n=2)
    try:
        second.rerank(model="no-such-model", query=query, documents=list(documents))
        refused = None
    except cohere.NotFoundError as error:
        refused = [error.status_code, error.body["error"]["code"]]
    print(json.dumps({
        "old": [[one.index, one.relevance_score, one.document.text] for one in old.results],
        "new": [[one.index, one.relevance_score] for one in new.results],
        "named": [[one.index, one.relevance_score] for one in named.results],
        "tokens": new.meta.tokens.input_tokens,
        "refused": refused,
    }))


main(*sys.argv[1:])
