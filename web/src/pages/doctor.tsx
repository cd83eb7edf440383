import { api } from "../api/client";
import type { Finding } from "../api/types";
import { useLoad } from "../lib/load";
import { Badge, Button, Card, Empty, Page, SeverityBadge, Shown } from "../ui/basics";

export function DoctorPage() {
  const findings = useLoad(api.findings);
  return (
    <Page
      title="Doctor" lead="What limits or endangers the service, and what to do about it."
      actions={<Button onClick={findings.reload}>Look again</Button>}
    >
      <Shown from={findings}>
        {(value) => (value.length === 0 ? <Card><Empty title="Nothing endangers or limits the service." /></Card>
          : value.map((finding) => <FindingCard key={finding.code + finding.subject} finding={finding} />))}
      </Shown>
    </Page>
  );
}

function FindingCard({ finding }: { finding: Finding }) {
  return (
    <Card
      title={<span class="name">{finding.subject || "Tarn"}</span>}
      actions={<><SeverityBadge severity={finding.severity} /><Badge><code>{finding.code}</code></Badge></>}
    >
      <p>{finding.message}</p>
      <p class="remedy"><b>What to do:</b> {finding.remedy}</p>
    </Card>
  );
}
