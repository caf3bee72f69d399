//! JSON: jsonb is held normalised, json as it was given. Values are parsed row by row.

mod access;
mod build;
mod change;
mod convert;
mod rows;
mod tree;

use super::{kernel::Traits, sequence, signature::Entry};

pub(super) use self::{
    convert::{Texts as JsonTexts, json_text_of, key_texts as json_key_texts},
    tree::{parse, write_json, write_jsonb},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::operator("->(json, text) json", "json_object_field", access::field),
    Entry::operator("->(jsonb, text) jsonb", "jsonb_object_field", access::field),
    Entry::operator("->(json, integer) json", "json_array_element", access::element),
    Entry::operator("->(jsonb, integer) jsonb", "jsonb_array_element", access::element),
    Entry::operator("->>(json, text) text", "json_object_field_text", access::field_text),
    Entry::operator("->>(jsonb, text) text", "jsonb_object_field_text", access::field_text),
    Entry::operator("->>(json, integer) text", "json_array_element_text", access::element_text),
    Entry::operator("->>(jsonb, integer) text", "jsonb_array_element_text", access::element_text),
    Entry::operator("#>(json, text[]) json", "json_extract_path_array", access::path),
    Entry::operator("#>(jsonb, text[]) jsonb", "jsonb_extract_path_array", access::path),
    Entry::operator("#>>(json, text[]) text", "json_extract_path_array_text", access::path_text),
    Entry::operator("#>>(jsonb, text[]) text", "jsonb_extract_path_array_text", access::path_text),
    Entry::strict("json_extract_path(json, variadic text) json", access::path_of_texts),
    Entry::strict("jsonb_extract_path(jsonb, variadic text) jsonb", access::path_of_texts),
    Entry::strict("json_extract_path_text(json, variadic text) text", access::path_of_texts_text),
    Entry::strict("jsonb_extract_path_text(jsonb, variadic text) text", access::path_of_texts_text),
    Entry::operator("?(jsonb, text) boolean", "jsonb_exists", access::has_key),
    Entry::operator("?|(jsonb, text[]) boolean", "jsonb_exists_any", access::has_any_key),
    Entry::operator("?&(jsonb, text[]) boolean", "jsonb_exists_all", access::has_all_keys),
    Entry::operator("@>(jsonb, jsonb) boolean", "jsonb_contains", access::contains),
    Entry::operator("<@(jsonb, jsonb) boolean", "jsonb_contained", access::contained),
    Entry::strict("json_typeof(json) text", access::type_of),
    Entry::strict("jsonb_typeof(jsonb) text", access::type_of).named("json_typeof"),
    Entry::strict("json_array_length(json) integer", access::array_length),
    Entry::strict("jsonb_array_length(jsonb) integer", access::array_length).named("json_array_length"),
    Entry::operator("||(jsonb, jsonb) jsonb", "jsonb_concat", change::concatenate),
    Entry::operator("-(jsonb, text) jsonb", "jsonb_delete", change::delete_key),
    Entry::operator("-(jsonb, text[]) jsonb", "jsonb_delete_keys", change::delete_keys),
    Entry::operator("-(jsonb, integer) jsonb", "jsonb_delete_element", change::delete_element),
    Entry::operator("#-(jsonb, text[]) jsonb", "jsonb_delete_path", change::delete_path),
    Entry::strict("jsonb_set(jsonb, text[], jsonb) jsonb", change::set),
    Entry::strict("jsonb_set(jsonb, text[], jsonb, boolean) jsonb", change::set),
    Entry::strict("jsonb_insert(jsonb, text[], jsonb) jsonb", change::insert),
    Entry::strict("jsonb_insert(jsonb, text[], jsonb, boolean) jsonb", change::insert),
    Entry::strict("json_strip_nulls(json) json", change::strip_nulls),
    Entry::strict("jsonb_strip_nulls(jsonb) jsonb", change::strip_nulls).named("json_strip_nulls"),
    Entry::strict("jsonb_pretty(jsonb) text", change::pretty),
    Entry::rewrite("json_build_object(variadic any) json", |binder, values| build::call(binder, "json_build_object", values)),
    Entry::rewrite("jsonb_build_object(variadic any) jsonb", |binder, values| build::call(binder, "jsonb_build_object", values)),
    Entry::rewrite("json_build_array(variadic any) json", |binder, values| build::call(binder, "json_build_array", values)),
    Entry::rewrite("jsonb_build_array(variadic any) jsonb", |binder, values| build::call(binder, "jsonb_build_array", values)),
    Entry::rewrite("to_json(any) json", |binder, values| build::call(binder, "to_json", values)),
    Entry::rewrite("to_jsonb(any) jsonb", |binder, values| build::call(binder, "to_jsonb", values)),
    Entry::rewrite("row_to_json(any) json", |binder, values| build::call(binder, "row_to_json", values)),
    Entry::rewrite("array_to_json(anyarray) json", |binder, values| build::call(binder, "to_json", values)),
    Entry::strict("json_object(text[]) json", build::object_of_texts),
    Entry::strict("json_object(text[], text[]) json", build::object_of_texts),
    Entry::strict("jsonb_object(text[]) jsonb", build::object_of_texts_b),
    Entry::strict("jsonb_object(text[], text[]) jsonb", build::object_of_texts_b),
    Entry::rewrite("json_array_elements(json) json", |binder, values| sequence::expand(binder, "json_elements", values)),
    Entry::rewrite("jsonb_array_elements(jsonb) jsonb", |binder, values| sequence::expand(binder, "jsonb_elements", values)),
    Entry::rewrite("json_array_elements_text(json) text", |binder, values| sequence::expand(binder, "json_elements_text", values)),
    Entry::rewrite("jsonb_array_elements_text(jsonb) text", |binder, values| sequence::expand(binder, "jsonb_elements_text", values)),
    Entry::rewrite("json_object_keys(json) text", |binder, values| sequence::expand(binder, "json_keys", values)),
    Entry::rewrite("jsonb_object_keys(jsonb) text", |binder, values| sequence::expand(binder, "jsonb_keys", values)),
    Entry::kernel("json_elements(json) json[]", Traits::STRICT, rows::elements),
    Entry::kernel("jsonb_elements(jsonb) jsonb[]", Traits::STRICT, rows::elements),
    Entry::kernel("json_elements_text(json) text[]", Traits::STRICT, rows::elements_text),
    Entry::kernel("jsonb_elements_text(jsonb) text[]", Traits::STRICT, rows::elements_text),
    Entry::kernel("json_keys(json) text[]", Traits::STRICT, rows::keys),
    Entry::kernel("jsonb_keys(jsonb) text[]", Traits::STRICT, rows::keys),
    Entry::rewrite("json_each(json) json", |binder, values| rows::each(binder, "json_each", values)),
    Entry::rewrite("jsonb_each(jsonb) jsonb", |binder, values| rows::each(binder, "jsonb_each", values)),
    Entry::rewrite("json_each_text(json) json", |binder, values| rows::each(binder, "json_each_text", values)),
    Entry::rewrite("jsonb_each_text(jsonb) jsonb", |binder, values| rows::each(binder, "jsonb_each_text", values)),
];
