// The type of a dashboard. Grafana's `Dashboard` leaves each panel's options open, so they are added here by its kind.
import type { Dashboard, FieldConfigSource, Panel, RowPanel } from '@grafana/schema';
import type * as Heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// A file has the value of an enum, not its name.
type Written<T> = T extends string
  ? `${T}`
  : T extends (infer Item)[]
    ? Written<Item>[]
    : T extends object
      ? { [Key in keyof T]: Written<T[Key]> }
      : T;

interface Kind<Name extends string, Options, Custom> extends Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> {
  type: Name;
  options: Written<Options>;
  fieldConfig: FieldConfigSource<Written<Custom>>;
  targets: Target[];
}

// A query of Grafana's Prometheus data source.
interface Target {
  refId: string;
  datasource: { type: 'prometheus'; uid: string };
  expr: string;
  legendFormat: string;
  editorMode: 'code';
  format: 'time_series' | 'heatmap';
  instant: boolean;
  range: boolean;
}

type Shown =
  | RowPanel
  | Kind<'stat', Stat.Options, Record<string, never>>
  | Kind<'timeseries', TimeSeries.Options, TimeSeries.FieldConfig>
  | Kind<'heatmap', Heatmap.Options, Heatmap.FieldConfig>;

export type Checked = Omit<Dashboard, 'panels'> & { panels: Shown[] };
// It must also match Grafana's own type.
export type Accepted = Dashboard;
