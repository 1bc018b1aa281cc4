//! The document as one page of plain HTML, without scripts or external resources.

use std::fmt::Write as _;

use serde_json::Value;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
nav a{display:inline-block;margin-right:1rem}code,pre{font:14px/1.45 ui-monospace,monospace;background:#f4f4f2;border-radius:4px}\
code{padding:0 .25em}pre{padding:.75em;overflow:auto}section{border-top:1px solid #ddd;margin-top:2rem}\
table{border-collapse:collapse;width:100%}td,th{border-top:1px solid #eee;padding:.3em .6em;text-align:left;vertical-align:top}\
h3 code{background:none}.m{font-weight:700;text-transform:uppercase;color:#0a5}small{color:#666}\
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}code,pre{background:#262626}a{color:#8bf}section,td,th{border-color:#333}}";

/// Renders the whole document.
pub(crate) fn html(document: &Value) -> String {
    let info = &document["info"];
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} API</title><style>{STYLE}</style><h1>{title} API <small>{version}</small></h1><p>{about}</p>\
         <p>Everything is under <code>{base}</code>; the machine-readable form is <a href=\"{base}/openapi.json\">openapi.json</a>. \
         Requests carry <code>Authorization: Bearer ak_…</code> unless stated otherwise.</p><nav>",
        title = text(&info["title"]),
        version = text(&info["version"]),
        about = prose(&info["description"]),
        base = text(&document["servers"][0]["url"]),
    );
    let tags = list(&document["tags"]);
    for tag in tags {
        let _ = write!(page, "<a href=\"#{0}\">{0}</a>", text(&tag["name"]));
    }
    page.push_str("<a href=\"#Types\">Types</a></nav>");
    for tag in tags {
        let name = text(&tag["name"]);
        let _ = write!(page, "<section id=\"{name}\"><h2>{name}</h2><p>{}</p>", prose(&tag["description"]));
        for (path, operations) in entries(&document["paths"]) {
            for (method, operation) in entries(operations) {
                if operation["tags"][0] == tag["name"] {
                    self::operation(&mut page, document, method, path, operation);
                }
            }
        }
        page.push_str("</section>");
    }
    page.push_str("<section id=\"Types\"><h2>Types</h2>");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let _ = write!(page, "<h3 id=\"{0}\"><code>{0}</code></h3>", escape(name));
        self::schema(&mut page, schema);
    }
    page.push_str("</section></html>");
    page
}

fn operation(page: &mut String, document: &Value, method: &str, path: &str, operation: &Value) {
    let id = text(&operation["operationId"]);
    let _ = write!(
        page,
        "<h3 id=\"{id}\"><span class=\"m\">{}</span> <code>{}</code></h3><p>{}.",
        escape(method),
        escape(path),
        prose(&operation["summary"]),
    );
    let open = list(&operation["security"]).is_empty();
    let _ = write!(page, " {}</p>", if open { "Needs no key." } else { "" });
    if operation["description"].is_string() {
        let _ = write!(page, "<p>{}</p>", prose(&operation["description"]));
    }
    parameters(page, list(&operation["parameters"]));
    for (media, body) in entries(&operation["requestBody"]["content"]) {
        let form = if media == "application/json" { "" } else { ", as a form" };
        let _ = write!(page, "<p>Body: {}{form}</p>", kind(&body["schema"]));
        let examples = entries(&body["examples"]).map(|(_, example)| &example["value"]);
        for example in examples.chain(body.get("example")) {
            let _ = write!(page, "<pre>{}</pre>", escape(&format!("{example:#}")));
        }
    }
    page.push_str("<table><tr><th>Answer<th>Body<th>");
    for (status, answer) in entries(&operation["responses"]) {
        let shared = answer["$ref"].as_str().and_then(|path| document.pointer(path.strip_prefix('#')?));
        let answer = shared.unwrap_or(answer);
        let content = &answer["content"];
        let mut kinds: Vec<String> = Vec::new();
        let json = &content["application/json"]["schema"];
        let stream = &content["text/event-stream"];
        if json.is_object() || json.is_boolean() {
            kinds.push(kind(json));
        }
        if stream.is_object() {
            kinds.push(format!(
                "Server-Sent Events of {}",
                kind(event_data(&stream["schema"]["properties"]["data"]))
            ));
        }
        if content["text/plain"].is_object() {
            kinds.push("text".to_owned());
        }
        let kinds = kinds.join(" or ");
        let _ = write!(page, "<tr><td>{}<td>{kinds}<td>{}", escape(status), prose(&answer["description"]));
    }
    page.push_str("</table>");
    if let Some(example) = operation["responses"]["200"]["content"]["text/event-stream"]["example"].as_str() {
        let _ = write!(page, "<pre>{}</pre>", escape(example));
    }
}

fn parameters(page: &mut String, parameters: &[Value]) {
    if parameters.is_empty() {
        return;
    }
    page.push_str("<table><tr><th>Parameter<th>In<th>Type<th>");
    for parameter in parameters {
        let _ = write!(
            page,
            "<tr><td><code>{}</code>{}<td>{}<td>{}<td>{}",
            text(&parameter["name"]),
            if parameter["required"] == true { "" } else { " <small>optional</small>" },
            text(&parameter["in"]),
            kind(&parameter["schema"]),
            prose(&parameter["description"]),
        );
    }
    page.push_str("</table>");
}

fn schema(page: &mut String, schema: &Value) {
    let _ = write!(page, "<p>{}</p>", prose(&schema["description"]));
    let alternatives: Vec<&Value> = ["oneOf", "anyOf"].iter().flat_map(|key| list(&schema[*key])).collect();
    if !alternatives.is_empty() {
        for alternative in alternatives {
            self::schema(page, alternative);
        }
        return;
    }
    if !schema["properties"].is_object() {
        let _ = write!(page, "<p>{}</p>", kind(schema));
        return;
    }
    page.push_str("<table><tr><th>Field<th>Type<th>");
    for (name, field) in entries(&schema["properties"]) {
        let required = list(&schema["required"]).iter().any(|required| required == name);
        let _ = write!(
            page,
            "<tr><td><code>{}</code>{}<td>{}<td>{}",
            escape(name),
            if required { "" } else { " <small>optional</small>" },
            kind(field),
            prose(&field["description"]),
        );
    }
    page.push_str("</table>");
}

/// A short description of a schema.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    let parts: Vec<&Value> = ["allOf", "anyOf", "oneOf"].iter().flat_map(|key| list(&schema[*key])).collect();
    if let Some(first) = parts.first() {
        let words: Vec<String> =
            parts.iter().map(|part| kind(part)).filter(|word| word != "anything").collect();
        return if schema["allOf"].is_array() { kind(first) } else { words.join(" or ") };
    }
    if let Some(constant) = schema.get("const") {
        return format!("<code>{}</code>", escape(&constant.to_string()));
    }
    let names: Vec<String> = list(&schema["enum"])
        .iter()
        .map(|name| format!("<code>{}</code>", escape(&name.to_string())))
        .collect();
    if !names.is_empty() {
        return names.join(", ");
    }
    let mut words = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::Null => "anything".to_owned(),
        kind => text(kind),
    };
    if schema["items"].is_object() {
        let _ = write!(words, " of {}", kind(&schema["items"]));
    }
    if let Some(format) = schema["format"].as_str().filter(|format| ["uuid", "date-time"].contains(format)) {
        let _ = write!(words, " ({format})");
    }
    if let (Some(least), Some(most)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        let _ = write!(words, " {least} to {most}");
    }
    words
}

/// The schema of the `data` of a Server-Sent Event.
fn event_data(data: &Value) -> &Value {
    let json = list(&data["anyOf"]).first().unwrap_or(data);
    &json["contentSchema"]
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

/// Text as HTML, with words between backticks as code.
fn prose(value: &Value) -> String {
    let text = escape(value.as_str().unwrap_or_default());
    let mut html = String::with_capacity(text.len());
    for (n, part) in text.split('`').enumerate() {
        let _ = if n % 2 == 0 { write!(html, "{part}") } else { write!(html, "<code>{part}</code>") };
    }
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_document_becomes_markup() {
        let document = serde_json::json!({
            "info": {"title": "<b>", "version": "1", "description": "`a<b` & \"c\""},
            "components": {"schemas": {"<i>": {"type": "string"}}},
        });
        let page = html(&document);
        assert!(!page.contains("<b>") && !page.contains("<i>"), "{page}");
        assert!(page.contains("<code>a&lt;b</code> &amp; &quot;c&quot;"), "{page}");
    }
}
