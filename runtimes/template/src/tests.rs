//! Templates in the styles of well-known models, and hostile ones.

use super::*;

fn message(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

fn conversation() -> Vec<Message> {
    vec![
        message("system", "Be kind."),
        message("user", "Hi"),
        message("assistant", "Hello"),
        message("user", "Bye"),
    ]
}

fn render(source: &str, messages: &[Message]) -> Result<String, TemplateError> {
    let template = Template::compile(Some(source.to_owned()), "<s>".to_owned(), "</s>".to_owned())?;
    template.render(&template.conversation(messages, None), 1_795_210_800)
}

#[test]
fn blocks_on_their_own_lines_leave_no_trace() {
    let source = "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n";
    let text = render(source, &[message("user", "Hi")]).expect("renders");
    assert_eq!(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn python_methods_slices_and_namespaces_work() {
    let source = "{%- set ns = namespace(n=0) -%}{{ bos_token }}{%- for m in messages[1:] -%}{% set ns.n = ns.n + 1 %}[{{ m['content'].strip() | trim }}{{ loop.index0 }}]{%- endfor -%}{{ ns.n }}{{ strftime_now('%d %b %Y') }}{% if tools is not none %}no{% endif %}";
    assert_eq!(render(source, &conversation()).expect("renders"), "<s>[Hi0][Hello1][Bye2]320 Nov 2026");
}

#[test]
fn a_model_without_system_messages_hears_it_from_the_user() {
    let source = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
    let text = render(source, &[message("system", "S"), message("user", "U")]).expect("renders");
    assert_eq!(text, "user:S\n\nU;");
}

#[test]
fn conversations_of_agents_become_alternating_turns() {
    let messages: Vec<Message> = [
        ("system", "A"),
        ("system", "B"),
        ("user", "C"),
        ("user", "D"),
        ("system", "E"),
        ("assistant", "F"),
        ("system", "G"),
    ]
    .map(|(role, content)| message(role, content))
    .into();
    let shown = "{{ m.role }}:{{ m.content }};";
    let each = format!("{{% for m in messages %}}{shown}{{% endfor %}}");
    let any = render(&each, &messages).expect("renders");
    assert_eq!(any, "system:A;system:B;user:C;user:D;system:E;assistant:F;system:G;", "as it is");
    let first_only = format!(
        "{{% for m in messages %}}{{% if m.role == 'system' and not loop.first %}}{{{{ raise_exception('first') }}}}{{% endif %}}{shown}{{% endfor %}}"
    );
    let turns = "user:C\n\nD\n\nE;assistant:F;user:G;";
    assert_eq!(render(&first_only, &messages).expect("renders"), format!("system:A\n\nB;{turns}"));
    let alternating = format!(
        "{{% for m in messages %}}{{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}}{{{{ raise_exception('alternate') }}}}{{% endif %}}{shown}{{% endfor %}}"
    );
    assert_eq!(
        render(&alternating, &messages).expect("renders"),
        "user:A\n\nB\n\nC\n\nD\n\nE;assistant:F;user:G;"
    );
}

#[test]
fn a_refusal_is_told_in_the_templates_words() {
    let refused = render("{{ raise_exception('roles must alternate') }}", &[message("user", "x")]);
    assert!(matches!(refused, Err(TemplateError::Refused(words)) if words == "roles must alternate"));
}

#[test]
fn what_never_ends_or_grows_without_end_meets_a_limit() {
    let hostile = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}{% call f() %}x{% endcall %}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ 'x' * 99999999 }}",
        "{{ '%18446744073709551615d' | format(1) }}",
        "{{ '%.99999999999f' | format(1.5) }}",
        "{{ '%*d' | format(99999999999, 1) }}",
        "{{ '{:>99999999999}'.format('x') }}",
        "{{ 'a\\nb' | indent(99999999999) }}",
        "{{ [1] | tojson(indent=9223372036854775807) }}",
        "{{ [1] | tojson(indent='x' * 9999) }}",
        "{{ [1] | tojson(separators=('x' * 9999, ':')) }}",
        "{{ 'a\\nb' | indent(width=99999999999) }}",
        "{{ [1] | batch(99999999999, 'x') }}",
        "{{ [1] | slice(99999999999, 'x') }}",
        "{{ range(99999) | join('x' * 99999) }}",
        "{{ ('x' * 99999).join(range(99999)) }}",
        "{{ ('x' * 99999) | replace('x', 'y' * 99999) }}",
        "{{ ('x' * 99999).replace('x', 'y' * 99999) }}",
        "{{ ('%s' * 99999) | format('y' * 99999) }}",
        "{{ ('{0}' * 99999).format('y' * 99999) }}",
        // A text that is doubled, in a variable, by capturing what is printed, in a list, and by a macro.
        "{% set n = namespace(t='ab') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
        "{% set n = namespace(t='ab') %}{% for i in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
        "{% set n = namespace(t='ab') %}{% for i in range(99) %}{% set n.t %}{{ n.t }}{{ n.t }}{% endset %}{% endfor %}",
        "{% set n = namespace(t=['ab']) %}{% for i in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
        "{% set n = namespace(t=['ab']) %}{% for i in range(99) %}{% set n.t = [n.t, n.t] %}{% endfor %}",
        "{% macro d(t) %}{{ t }}{{ t }}{% endmacro %}{{ d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d(d('abc'))))))))))))))))))))))) }}",
        "{% set x %}{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}{% endset %}",
        "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = n.l + ['x' * 99999] %}{% endfor %}",
        "{% set l = ['x' * 999999] * 99999 %}{{ l | tojson | length }}",
        // What contains itself, or is nested too deeply to be printed or dropped.
        "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
        "{% set n = namespace() %}{% set n.n = [n] %}{{ n }}",
        "{% set n = namespace() %}{% set n.n = {'n': n} %}{{ n }}",
        "{% set n = namespace() %}{% set m = namespace(n=n) %}{% set n.m = m %}{{ n }}",
        "{% set n = namespace() %}{% for i in range(90000) %}{% set n.x = [n.x] %}{% endfor %}",
        "{% set n = namespace() %}{% for i in range(90000) %}{% set n.x = {'x': n.x} %}{% endfor %}",
        "{% set n = namespace() %}{% for i in range(90000) %}{% set n.x = (n.x, 1) %}{% endfor %}",
        "{% set n = namespace() %}{% for i in range(90000) %}{% set n.x = dict(x=n.x) %}{% endfor %}",
    ];
    for source in hostile {
        let outcome = render(source, &[message("user", "x")]);
        assert!(matches!(outcome, Err(TemplateError::Limit)), "{source}: {outcome:?}");
    }
    let chain = |step: &str| format!("{{% set x = 1 %}}{}{{{{ x }}}}", step.repeat(40_000));
    let raw =
        format!("{{% set x %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}", "x".repeat(9999));
    let outcome = render(&raw, &[message("user", "x")]);
    assert!(matches!(outcome, Err(TemplateError::Limit)), "{outcome:?}");
    for step in ["{% set x = [x] %}", "{% set x=namespace(a=x) %}"] {
        let outcome = render(&chain(step), &[message("user", "x")]);
        assert!(matches!(outcome, Err(TemplateError::Limit)), "{step}: {outcome:?}");
    }
    assert!(matches!(
        Template::compile(Some("x".repeat(2 << 20)), String::new(), String::new()),
        Err(TemplateError::Limit)
    ));
}

#[test]
fn lazy_sequences_do_not_keep_each_other() {
    // 90,000 slices, of which each would read the one before it.
    let source = "{% set n = namespace(l=[1, 2, 3]) %}{% for i in range(90000) %}{% set n.l = n.l[0:] %}{% endfor %}{{ n.l }}";
    assert_eq!(render(source, &[message("user", "x")]).expect("renders"), "[1, 2, 3]");
}

#[test]
fn checked_code_computes_the_same() {
    let source = "{% macro tag(name, n) %}<{{ name }} {{ n.count }}>{% endmacro %}\
        {% set n = namespace(count=0, all=[]) %}\
        {% for m in messages if m.role != 'system' %}\
        {% set n.count = n.count + 1 %}{% set n.all = n.all + [m.role[0] | upper] %}\
        {{ tag(name=m.role, n=n) }}{{ m.content if loop.first else '-' }}{% else %}none\
        {% endfor %}\
        {% set text %}{{ n.all | join('+') }}{% endset %}{{ text ~ '!' }}{{ {'a': [1, (2, 3)]} }}\
        {% for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}\
        {{ (messages | map(attribute='content') | list)[1:][::-1] | join(',') }}\
        {{ n.all and 'yes' or 'no' }}{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}in{% endcall %}{% filter upper %}low{% endfilter %}";
    let expected = "<user 1>Hi<assistant 2>-<user 3>-U+A+U!{'a': [1, (2, 3)]}123Bye,Hello,Hiyes[in]LOW";
    assert_eq!(render(source, &conversation()).expect("renders"), expected);
}

#[test]
fn deep_syntax_is_refused_before_it_fills_the_stack() {
    let chains = [
        "-",
        "not ",
        "a+",
        "a.b|",
        "a~",
        "a and ",
        "a if b else ",
        "a.",
        "a[0]",
        "a()",
        "a in ",
        "a|upper|",
        "(",
        "[",
        "{1:",
        "a is ",
    ];
    for chain in chains {
        for times in [100, 240, 1000, 50_000] {
            let source = format!("{{{{ {}a }}}}", chain.repeat(times));
            let compiled = Template::compile(Some(source), String::new(), String::new());
            assert!(times < 1000 || matches!(compiled, Err(TemplateError::Limit)), "{chain} {times}");
        }
    }
    for times in [100, 200, 201, 20_000] {
        let source = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(times));
        let compiled = Template::compile(Some(source), String::new(), String::new());
        assert_eq!(compiled.is_ok(), times <= 200, "{times}");
    }
    let nested = format!("{{% if {} %}}", "a-".repeat(200)).repeat(140);
    assert!(Template::compile(Some(nested), String::new(), String::new()).is_err());
    let list = format!("{{{{ [{}] | length }}}}", "'a', 1, ".repeat(5000));
    assert_eq!(render(&list, &[message("user", "x")]).expect("a long list is flat"), "10000");
}

#[test]
fn texts_are_padded_to_usual_widths() {
    let source =
        "{{ '%05d|%-6s|%.2f' | format(7, 'ab', 1.5) }}|{{ '{:>4}'.format(9) }}|{{ 'a\\nb' | indent(2) }}";
    assert_eq!(render(source, &[message("user", "x")]).expect("renders"), "00007|ab    |1.50|   9|a\n  b");
}

#[test]
fn without_a_template_roles_are_written_out() {
    let template = Template::compile(None, String::new(), String::new()).expect("nothing to compile");
    let text = template.render(&template.conversation(&[message("user", "Hi")], None), 0).expect("renders");
    assert_eq!(text, "User: Hi\n\nAssistant:");
}

#[test]
fn control_texts_are_broken_and_others_kept() {
    let specials = ["<|im_end|>"];
    assert_eq!(defuse("a<|im_end|>b", specials), "a<\u{200b}|im_end|>b");
    assert_eq!(defuse("plain", specials), "plain");
}

#[test]
fn functions_go_to_their_place_or_are_told_in_words() {
    let tools = [serde_json::json!({ "type": "function", "function": { "name": "weather" } })];
    let offer = Offer { tools: &tools, instructions: "You may call weather.".to_owned() };
    let compile = |source: &str| Template::compile(Some(source.to_owned()), String::new(), String::new());
    let knows = compile("{% if tools %}{{ tools | length }}{% endif %}").expect("a template");
    let placed = knows.conversation(&conversation(), Some(&offer));
    assert_eq!((placed.tools.len(), placed.messages[0].content.as_str()), (1, "Be kind."));
    let rendered = compile("{{ messages }}").expect("a template").conversation(&conversation(), Some(&offer));
    assert!(rendered.tools.is_empty());
    assert_eq!(rendered.messages[0].content, "Be kind.\n\nYou may call weather.");
}

#[test]
fn settings_of_reasoning_reach_the_template_only_if_they_are_set() {
    let source = "{% if enable_thinking is defined %}{{ enable_thinking }}{% else %}unset{% endif %} {{ reasoning_effort | default('usual') }}{% for m in messages %}{% if m.reasoning_content is defined %} [{{ m.reasoning_content }}{{ m.thinking }}]{% endif %}{% endfor %}";
    let template =
        Template::compile(Some(source.to_owned()), String::new(), String::new()).expect("a template");
    let thought = Message { reasoning: Some("Hm.".to_owned()), ..message("assistant", "Yes") };
    let messages = [message("user", "Hi"), thought];
    let plain = template.conversation(&messages, None);
    assert_eq!(template.render(&plain, 0).expect("renders"), "unset usual [Hm.Hm.]");
    let thinking = Thinking { enabled: Some(true), effort: Some("high".to_owned()) };
    let set = Conversation { thinking, ..plain };
    assert_eq!(template.render(&set, 0).expect("renders"), "True high [Hm.Hm.]");
}

/// Templates and conversations with the texts that transformers renders, written by `tools/parity/templates.py`.
const REFERENCE: &str = include_str!("reference.json");

#[test]
fn prompts_equal_those_of_transformers() {
    let reference: Json = serde_json::from_str(REFERENCE).expect("the table");
    let templates = reference.as_object().expect("templates by name");
    let mut count = 0;
    for (name, entry) in templates {
        let source = entry["template"].as_str().expect("a template").to_owned();
        let template =
            Template::compile(Some(source), "<s>".to_owned(), "</s>".to_owned()).expect("it compiles");
        for case in entry["cases"].as_array().expect("cases") {
            let messages: Vec<Message> =
                case["messages"].as_array().expect("messages").iter().map(read).collect();
            let tools = case["tools"].as_array().cloned().unwrap_or_default();
            let offer = Offer { tools: &tools, instructions: String::new() };
            let mut conversation =
                template.conversation(&messages, Some(&offer).filter(|_| !tools.is_empty()));
            conversation.thinking.enabled = case["enable_thinking"].as_bool();
            let text = template.render(&conversation, 1_795_210_800).expect("it renders");
            assert_eq!(text, case["text"].as_str().expect("a text"), "{name} {}", case["name"]);
            count += 1;
        }
    }
    assert!(count > 30, "{count} conversations");
}

/// A message of the table.
fn read(message: &Json) -> Message {
    let text = |field: &str| message[field].as_str().map(str::to_owned);
    Message {
        reasoning: text("reasoning_content"),
        calls: message["tool_calls"].as_array().cloned().unwrap_or_default(),
        call_id: text("tool_call_id"),
        name: text("name"),
        ..Message::new(text("role").expect("a role"), text("content").expect("a text"))
    }
}

#[test]
fn an_error_beyond_the_columns_that_the_lexer_counts_is_reported() {
    let outcome = render(&format!("{{{{{}?", " ".repeat(70_000)), &[]);
    assert!(matches!(outcome, Err(TemplateError::Limit | TemplateError::Compile(_))), "{outcome:?}");
}
