//! Tables: a bold header over a thin line, numbers to the right and never broken, no columns that say nothing.

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, TableStyle,
};

/// A cell where there is nothing to say.
pub(crate) const NOTHING: &str = "-";

/// A column's title and which way its cells lean.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// Rows under a header.
pub(crate) struct Sheet<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Sheet<N> {
    pub(crate) fn new(columns: [Column; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// The table as text; columns without a single word are left out.
    pub(crate) fn render(&self) -> String {
        let speaks = |row: &[String; N], place: usize| !row[place].is_empty() && row[place] != NOTHING;
        let shown: Vec<usize> = (0..N).filter(|&place| self.rows.iter().any(|row| speaks(row, place))).collect();

        let mut table = fitted();
        table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
        let header = shown.iter().map(|&place| match self.columns[place] {
            Column::Text(title) | Column::Number(title) => Cell::new(title).add_attribute(Attribute::Bold),
        });
        table.set_header(header.collect::<Vec<_>>());
        for row in &self.rows {
            table.add_row(shown.iter().map(|&place| row[place].as_str()).collect::<Vec<_>>());
        }
        for (column, &place) in table.column_iter_mut().zip(&shown) {
            if let Column::Number(_) = self.columns[place] {
                column.set_cell_alignment(CellAlignment::Right);
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        text(&table)
    }
}

/// A list of facts: what, in bold, then how much.
pub(crate) fn of_facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = fitted();
    table.load_style(TableStyle::new());
    for (what, value) in facts {
        table.add_row(Row::from(vec![Cell::new(what).add_attribute(Attribute::Bold), Cell::new(value)]));
    }
    text(&table)
}

fn fitted() -> Table {
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table
}

fn text(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_says_nothing_is_left_out() {
        let mut sheet = Sheet::new([Column::Text("type"), Column::Text("label"), Column::Number("nodes")]);
        sheet.add(["user", NOTHING, "12"].map(str::to_owned));
        sheet.add(["item", "", "1,234"].map(str::to_owned));
        assert_eq!(sheet.render(), " type   nodes\n──────────────\n user      12\n item   1,234");
    }
}
