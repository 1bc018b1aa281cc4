use proptest::prelude::*;

use super::*;

const THINK: Format = Format::Tags("<think>", "</think>");

/// Adds a text in pieces of `size` characters; returns the reasoning and the answer.
fn split(mut splitter: Splitter, text: &str, size: usize) -> (String, String) {
    let characters: Vec<char> = text.chars().collect();
    let mut parts = Vec::new();
    for piece in characters.chunks(size) {
        parts.extend(splitter.push(&piece.iter().collect::<String>()));
    }
    parts.extend(splitter.finish());
    let (mut reasoning, mut answer) = (String::new(), String::new());
    for part in parts {
        match part {
            Part::Reasoning(text) => reasoning += &text,
            Part::Answer(text) => answer += &text,
        }
    }
    (reasoning, answer)
}

fn fresh(format: Format, is_opened: bool) -> Splitter {
    Splitter::new(format, is_opened, "", "")
}

#[test]
fn the_format_is_read_from_the_template() {
    assert_eq!(Format::of("{{ content.split('</think>')[-1] }}"), Some(THINK));
    assert_eq!(Format::of("[THINK]{{ x }}[/THINK]"), Some(Format::Tags("[THINK]", "[/THINK]")));
    assert_eq!(Format::of("<|start|>assistant<|channel|>analysis<|message|>"), Some(Format::Channels));
    assert_eq!(Format::of("<|im_start|>{{ role }}"), None);
}

#[test]
fn tags_separate_reasoning_and_answer_in_any_pieces() {
    for size in 1..12 {
        let (reasoning, answer) =
            split(fresh(THINK, false), "\n<think>\nTwo <b> and\n\nthree.\n</think>\n\nFive </think>.", size);
        assert_eq!((reasoning.as_str(), answer.as_str()), ("Two <b> and\n\nthree.", "Five </think>."));
        let opened = split(fresh(THINK, true), "\nHm.\n</think>\nYes.", size);
        assert_eq!(opened, ("Hm.".to_owned(), "Yes.".to_owned()));
        let unfinished = split(fresh(THINK, true), "Hm, </thin", size);
        assert_eq!(unfinished, ("Hm, </thin".to_owned(), String::new()));
        let none = split(fresh(THINK, false), "<thing> is <think> no tag", size);
        assert_eq!(none, (String::new(), "<thing> is <think> no tag".to_owned()));
        let empty = split(fresh(THINK, false), "<think>\n\n</think>\n\nYes.", size);
        assert_eq!(empty, (String::new(), "Yes.".to_owned()));
    }
}

#[test]
fn channels_separate_reasoning_answer_and_calls() {
    for size in 1..12 {
        let text = "<|channel|>analysis<|message|>User wants it.<|end|><|start|>assistant<|channel|>final<|message|>Here: < it.";
        assert_eq!(
            split(fresh(Format::Channels, false), text, size),
            ("User wants it.".to_owned(), "Here: < it.".to_owned())
        );
        let text = "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Rome\"}";
        let (reasoning, answer) = split(fresh(Format::Channels, false), text, size);
        assert_eq!(reasoning, "Need weather.");
        let call = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}";
        assert_eq!(answer, call);
        let (_, answer) = split(fresh(Format::Channels, false), &format!("{text}<|call|>"), size);
        assert_eq!(answer, format!("{call}}}</tool_call>"));
        assert_eq!(split(fresh(Format::Channels, false), "plain", size), (String::new(), "plain".to_owned()));
    }
}

#[test]
fn a_reply_is_resumed_where_it_stopped() {
    let text = |pieces: Vec<(String, bool)>| pieces.into_iter().map(|(text, _)| text).collect::<String>();
    assert_eq!(text(THINK.resumed(false, "Hm", "")), "<think>\nHm");
    assert_eq!(text(THINK.resumed(true, "Hm", "")), "Hm");
    assert_eq!(text(THINK.resumed(true, "Hm", "Yes")), "Hm\n</think>\n\nYes");
    assert_eq!(text(THINK.resumed(true, "", "Yes")), "\n</think>\n\nYes");
    assert_eq!(text(THINK.resumed(false, "", "Yes")), "Yes");
    let channels = text(Format::Channels.resumed(false, "Hm", "Yes"));
    assert_eq!(
        channels,
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes"
    );
    let after = Splitter::new(THINK, true, "Hm", "");
    assert_eq!(split(after, " so.</think>Yes", 3), (" so.".to_owned(), "Yes".to_owned()));
    let in_call =
        Splitter::new(Format::Channels, false, "Hm", "<tool_call>{\"name\": \"f\", \"arguments\": {");
    assert_eq!(split(in_call, "}<|call|>", 3), (String::new(), "}}</tool_call>".to_owned()));
    let in_answer = Splitter::new(THINK, true, "Hm", "Ye");
    assert_eq!(split(in_answer, "s </think>", 3), (String::new(), "s </think>".to_owned()));
}

proptest! {
    #[test]
    fn pieces_do_not_matter_and_no_letter_is_lost(text in "(<think>)?[a-z <>/\n]{0,30}(</think>)?[a-z </>\n]{0,30}", size in 1_usize..9) {
        let whole = split(fresh(THINK, false), &text, usize::MAX);
        let (reasoning, answer) = split(fresh(THINK, false), &text, size);
        prop_assert_eq!(&(reasoning.clone(), answer.clone()), &whole);
        let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        let joined = letters(&format!("{reasoning}{answer}"));
        let tags = letters(&text).replacen("<think>", "", 1).replacen("</think>", "", 1);
        // The tags are left out if they are at their place; otherwise they are text.
        prop_assert!(joined == letters(&text) || joined == tags || joined == letters(&text).replacen("<think>", "", 1));
    }
}
