import { api } from "../api/client";
import type { Check, Finding, Severity } from "../api/types";
import { useLoad } from "../lib/load";
import { plural } from "../lib/units";
import { href } from "../router";
import { Badge, Button, Card, Empty, Page, SeverityBadge, Shown } from "../ui/basics";
import { Table } from "../ui/table";

const RANK: Record<Severity, number> = { error: 0, warning: 1, info: 2 };

export function HealthPage() {
  const findings = useLoad(api.findings);
  const checks = useLoad(api.checks);
  return (
    <Page
      title="Health" lead="What limits or endangers the service, and what to do about it. The same as tarn doctor."
      actions={<Button onClick={findings.reload}>Check again</Button>}
    >
      <Shown from={findings}>
        {(value) => (
          <>
            <Card title={value.length === 0 ? "Findings" : plural(value.length, "finding")}><Findings findings={value} /></Card>
            <Shown from={checks}>{(all) => <Checks checks={all} findings={value} />}</Shown>
          </>
        )}
      </Shown>
    </Page>
  );
}

function Findings({ findings }: { findings: Finding[] }) {
  if (findings.length === 0) return <Empty title="Nothing endangers or limits the service." />;
  const subject = ({ lun, subject: text }: Finding) => (lun ? <a class="name strong" href={href("luns", lun)}>{text}</a> : <b class="name">{text || "Tarn"}</b>);
  return (
    <Table
      label="Findings" rows={findings} keyOf={({ code, subject: text, message }) => `${code} ${text} ${message}`} page={10}
      search={{ hint: "by subject, code or words", text: (finding) => `${finding.subject} ${finding.code} ${finding.message}` }}
      columns={[
        { title: "Severity", by: ({ severity }) => RANK[severity], cell: ({ severity }) => <SeverityBadge severity={severity} /> },
        { title: "About", by: (finding) => finding.subject, cell: subject },
        { title: "Finding", isWide: true, cell: ({ message, remedy }) => <><span class="name">{message}</span><p class="remedy"><b>What to do:</b> {remedy}</p></> },
        { title: "Code", isMinor: true, by: ({ code }) => code, cell: ({ code }) => <code class="nowrap">{code}</code> },
      ]}
    />
  );
}

function Checks({ checks, findings }: { checks: Check[]; findings: Finding[] }) {
  const of = (code: string) => findings.filter((finding) => finding.code === code);
  const passed = checks.filter(({ code }) => of(code).length === 0).length;
  const state = ({ code }: Check) => {
    const found = of(code);
    if (found.length === 0) return <Badge tone="good">passed</Badge>;
    const worst = [...found].sort((a, b) => RANK[a.severity] - RANK[b.severity])[0];
    return <Badge tone={worst?.severity === "error" ? "bad" : worst?.severity === "warning" ? "warn" : "info"}>{plural(found.length, "finding")}</Badge>;
  };
  return (
    <Card title={`${passed} of ${checks.length} checks passed`}>
      <Table
        label="Checks" rows={checks} keyOf={({ code }) => code} page={20} search={{ hint: "by code or words", text: ({ code, finding }) => `${code} ${finding}` }}
        columns={[
          { title: "Result", by: ({ code }) => -of(code).length, cell: state },
          { title: "Looks for", isWide: true, cell: ({ finding }) => finding },
          { title: "Code", by: ({ code }) => code, isMinor: true, cell: ({ code }) => <code class="nowrap">{code}</code> },
        ]}
      />
    </Card>
  );
}
