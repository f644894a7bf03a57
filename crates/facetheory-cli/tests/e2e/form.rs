//! HTML forms, filled in and sent as a browser does.

/// The names and values of a form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form {
    fields: Vec<(String, String)>,
    /// The field, the name and the content of each file.
    files: Vec<[String; 3]>,
}

/// The multipart boundary, which occurs in no value.
const BOUNDARY: &str = "a-boundary-of-the-tests";

impl Form {
    /// The form whose tag contains these words, with its default values.
    pub(crate) fn in_page(page: &str, words: &str) -> Form {
        let forms = page.split("<form").skip(1);
        let form = forms
            .filter_map(|rest| rest.split("</form>").next())
            .find(|form| form.split('>').next().is_some_and(|tag| tag.contains(words)))
            .unwrap_or_else(|| panic!("no form with {words:?} in {page}"));
        let mut fields = Vec::new();
        for tag in form.split("<input").skip(1).filter_map(|rest| rest.split('>').next()) {
            let unset = matches!(attribute(tag, "type").as_deref(), Some("checkbox" | "radio" | "file"));
            if let (Some(name), false) = (attribute(tag, "name"), unset) {
                fields.push((name, attribute(tag, "value").unwrap_or_default()));
            }
        }
        for area in form.split("<textarea").skip(1).filter_map(|rest| rest.split("</textarea>").next()) {
            let (tag, text) = area.split_once('>').unwrap_or((area, ""));
            if let Some(name) = attribute(tag, "name") {
                fields.push((name, unescaped(text.trim())));
            }
        }
        Form { fields, files: Vec::new() }
    }

    /// Sets a value.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Form {
        self.fields.retain(|(other, _)| other != name);
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a text file.
    pub(crate) fn with_file(mut self, field: &str, name: &str, content: &str) -> Form {
        self.files.push([field, name, content].map(str::to_owned));
        self
    }

    /// Encodes it as `application/x-www-form-urlencoded`.
    pub(crate) fn encoded(&self) -> String {
        let pairs = self.fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Encodes it as `multipart/form-data`; returns the content type and the body.
    pub(crate) fn multipart(&self) -> (String, String) {
        let mut body = String::new();
        for (name, value) in &self.fields {
            body += &format!(
                "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        }
        for [field, name, content] in &self.files {
            body += &format!(
                "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\n\
                 content-type: text/plain\r\n\r\n{content}\r\n"
            );
        }
        (format!("multipart/form-data; boundary={BOUNDARY}"), body + &format!("--{BOUNDARY}--\r\n"))
    }
}

/// The value of an attribute of a tag.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next().map(unescaped)
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
