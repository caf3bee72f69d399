//! Messages of a client, built; messages of a server, taken apart.

/// A typed message: type byte, length, body.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u16).to_be_bytes());
}

/// The first packet of a session.
pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        text(&mut body, name);
        text(&mut body, value);
    }
    body.push(0);
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend_from_slice(&body);
    packet
}

/// A simple query.
pub fn query(sql: &str) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, sql);
    frame(b'Q', &body)
}

/// Parse; type 0 leaves a parameter's type to the server.
pub fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, name);
    text(&mut body, sql);
    count(&mut body, types.len());
    types.iter().for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
    frame(b'P', &body)
}

/// Bind with one format for all parameters and one for all columns; true is binary.
pub fn bind(portal: &str, statement: &str, parameters: &[Option<&[u8]>], parameters_binary: bool, results_binary: bool) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, portal);
    text(&mut body, statement);
    count(&mut body, 1);
    body.extend_from_slice(&u16::from(parameters_binary).to_be_bytes());
    count(&mut body, parameters.len());
    for parameter in parameters {
        match parameter {
            None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(bytes) => {
                body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                body.extend_from_slice(bytes);
            }
        }
    }
    count(&mut body, 1);
    body.extend_from_slice(&u16::from(results_binary).to_be_bytes());
    frame(b'B', &body)
}

/// Describe of a statement (`S`) or portal (`P`).
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    let mut body = vec![kind];
    text(&mut body, name);
    frame(b'D', &body)
}

/// Close of a statement (`S`) or portal (`P`).
pub fn close(kind: u8, name: &str) -> Vec<u8> {
    let mut body = vec![kind];
    text(&mut body, name);
    frame(b'C', &body)
}

/// Execute; 0 rows are all.
pub fn execute(portal: &str, max_rows: u32) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, portal);
    body.extend_from_slice(&max_rows.to_be_bytes());
    frame(b'E', &body)
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Type byte.
    pub kind: u8,
    /// What follows the length.
    pub body: Vec<u8>,
}

/// A column of a RowDescription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowColumn {
    /// Its name.
    pub name: String,
    /// OID of its type.
    pub type_oid: u32,
    /// Bytes of the type, or -1.
    pub type_length: i16,
    /// Type modifier, or -1.
    pub type_modifier: i32,
    /// 0 is text, 1 binary.
    pub format: i16,
}

/// Reads a body from front to back.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(N);
        self.0 = rest;
        taken.try_into().expect("N bytes")
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).expect("a text ends with a zero byte");
        let text = String::from_utf8(self.0[..end].to_vec()).expect("UTF-8");
        self.0 = &self.0[end + 1..];
        text
    }
}

impl Message {
    /// The values of a DataRow.
    pub fn row(&self) -> Vec<Option<Vec<u8>>> {
        let mut body = Body(&self.body);
        let columns = u16::from_be_bytes(body.take());
        let value = |_| {
            let length = i32::from_be_bytes(body.take());
            let length = usize::try_from(length).ok()?;
            let (value, rest) = body.0.split_at(length);
            body.0 = rest;
            Some(value.to_vec())
        };
        (0..columns).map(value).collect()
    }

    /// The columns of a RowDescription.
    pub fn columns(&self) -> Vec<RowColumn> {
        let mut body = Body(&self.body);
        let columns = u16::from_be_bytes(body.take());
        let column = |_| {
            let name = body.text();
            let _table: [u8; 6] = body.take();
            let type_oid = u32::from_be_bytes(body.take());
            let type_length = i16::from_be_bytes(body.take());
            let type_modifier = i32::from_be_bytes(body.take());
            RowColumn { name, type_oid, type_length, type_modifier, format: i16::from_be_bytes(body.take()) }
        };
        (0..columns).map(column).collect()
    }

    /// The types of a ParameterDescription.
    pub fn parameter_types(&self) -> Vec<u32> {
        let mut body = Body(&self.body);
        let count = u16::from_be_bytes(body.take());
        (0..count).map(|_| u32::from_be_bytes(body.take())).collect()
    }

    /// The fields of an ErrorResponse or NoticeResponse.
    pub fn fields(&self) -> Vec<(char, String)> {
        let mut body = Body(&self.body);
        let mut fields = Vec::new();
        while let Some(code) = body.0.first().copied().filter(|code| *code != 0) {
            body.0 = &body.0[1..];
            fields.push((char::from(code), body.text()));
        }
        fields
    }

    /// Name and value of a ParameterStatus.
    pub fn parameter(&self) -> (String, String) {
        let mut body = Body(&self.body);
        (body.text(), body.text())
    }

    /// A command tag, or another body that is one text.
    pub fn tag(&self) -> String {
        Body(&self.body).text()
    }
}
