"""What each call of the API answers: its top-level fields, for the OpenAPI document.

A line is `METHOD PATH`, then the fields with their types; `[]` is a list of such objects. A type that ends with `?` may
be null, or the field missing: a part of the status that cannot be read has `error` and `exit_code` in place of others.
"""

from __future__ import annotations

from typing import Any, Final

_TYPES: Final = {
    "str": "string",
    "int": "integer",
    "num": "number",
    "bool": "boolean",
    "list": "array",
    "obj": "object",
    "any": ["string", "number", "boolean", "array", "object", "null"],
}

_PART: Final = "age_seconds:num error:str? exit_code:int?"
_PAGE: Final = "items:list next:obj?"
_EXCEEDED: Final = "id:int topic:str key:str? attempts:int code:str parks:bool exceeded_at:str reason:str"
_LETTER: Final = "id:str pipeline:str key:str? code:str recorded_at:str detail:str"
_GROUP: Final = "code:str topic:str count:int oldest:str?"
_ACTION: Final = (
    "id:str acted_at:str actor:str origin:str action:str target:obj reason:str state:str result:obj now:obj"
)
_SETTLED: Final = " ".join(f"{each.partition('?')[0]}?" for each in f"{_ACTION} count:int dry_run:bool".split())

_ANSWERS: Final = f"""
GET /status | database:obj kafka:obj relay:obj topics:obj pipeline:obj journal:obj
GET /flow | health:str sentence:str hops:list concerns:list
GET /key | key:str summary:str has_arrived:bool is_known:bool outbox:obj? topics:list tables:list journals:list findings:list paused:list unseen:obj
GET /relay | {_PART} group:str? table:str? strategy:str? shards:int? waiting:int? oldest_seconds:num? owner:str? term:int? owners:list? terms:list? instances:list? shard_owners:list? served:obj? breakers:obj? phantoms:str? exceeded:int? exceeded_groups:list? workers:int? topics:list? offset:int? newest_id:int? behind:int? missing:int?
GET /topics | {_PART} switched:int? behind:obj? paused:obj? listed:list? generations:list?
GET /topics/{{name}} | topic:str used_by:list? kafka_topic:str partitions:int? generation:int phase:str target:str paused:str? paused_keys:int? epoch:int? mirrored_epoch:int? behind:int? next:str? generations:list?
GET /topics-plan | [] action:str text:str
GET /pipeline | {_PART} engine:str? pipelines:list? applied:int? identical:int? stale:int? ignored:int? rejected:int? behind:int? undecided:int? ends:int? oldest_seconds:num? last_slice_seconds:num? unknown_fields:obj? waiting:list? dead_letters:int? dead_letter_groups:list? partitions:list? jobs:list?
GET /pipeline-plan | [] table:str field:str records:int type:str? statement:str?
GET /journals | {_PART} topics:int? behind:int? ends:int? replicated:int? parked:int? lag:list?
GET /journal-list | items:list has_more:bool
GET /journal | topic:str id:str seq_nr:int? delete_to:int? partition:int? store:obj? replicated:int? is_stored:bool parked:str from:int events:list
GET /exceeded | {_PAGE}
GET /exceeded-groups | [] {_GROUP}
GET /exceeded/{{id}} | {_EXCEEDED} headers:any value:str?
POST /exceeded/retry | {_SETTLED}
POST /exceeded/discard | {_SETTLED}
GET /missing | {_PAGE}
GET /dead-letters | {_PAGE}
GET /dead-letter-groups | [] pipeline:str {_GROUP}
GET /dead-letters/{{id}} | {_LETTER} generation:int record_timestamp:str? value:str? key_base64:str? value_base64:str?
POST /dead-letters/retry | {_SETTLED}
POST /dead-letters/discard | {_SETTLED}
GET /quarantine | [] topic:str id:str partition:int offset:int value:str reason:str
POST /quarantine/release | {_ACTION}
POST /quarantine/discard | {_ACTION}
POST /pause | {_ACTION}
POST /resume | {_ACTION}
POST /topics/apply | {_ACTION}
POST /topics/failover | {_ACTION}
POST /topics/migrate | {_ACTION}
POST /relay/reshard | {_ACTION}
POST /outbox/replay | {_SETTLED}
POST /pipeline/apply | {_ACTION}
GET /doctor | [] name:str status:str detail:str hint:str unreachable:bool
GET /settings | [] key:str value:any source:str place:str
GET /actions | {_PAGE}
GET /actions/{{id}} | {_ACTION}
GET /openapi.json | openapi:str info:obj paths:obj components:obj security:list
"""  # noqa: E501 - a line is a call

_BY_CALL: Final = {
    call: fields for call, _, fields in (line.partition(" | ") for line in _ANSWERS.strip().splitlines())
}


def answer_schema(method: str, path: str) -> dict[str, Any]:
    """The JSON Schema of what a call answers."""
    fields = _BY_CALL[f"{method} {path}"].split()
    is_list = fields[0] == "[]"
    properties, required = {}, []
    for name, _, kind in (each.partition(":") for each in fields[is_list:]):
        found: Any = _TYPES[kind.rstrip("?")]
        properties[name] = {"type": [found, "null"] if kind.endswith("?") else found}
        if not kind.endswith("?"):
            required.append(name)
    one = {"type": "object", "properties": properties, "required": required}
    return {"type": "array", "items": one} if is_list else one
