import django.db.models.deletion
import portal.core.clock
import portal.core.models
import slipway.schemas.spend
from django.conf import settings
from django.db import migrations, models

from portal.core.create_models import CreateModels


# The database itself refuses to change or delete what was billed and what prices were.
TABLES = ("spend_line", "spend_rateprice")
SQLITE = """
CREATE TRIGGER {table}_no_{what} BEFORE {WHAT} ON {table}
BEGIN SELECT RAISE(ABORT, 'the ledger is only ever added to'); END
"""
POSTGRES_FUNCTION = """
CREATE FUNCTION spend_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the ledger is only ever added to'; END $$;
"""
POSTGRES = """
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION spend_refuse();
"""


def add(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    if is_postgres:
        schema_editor.execute(POSTGRES_FUNCTION)
    for table in TABLES:
        if is_postgres:
            schema_editor.execute(POSTGRES.format(table=table))
            continue
        for what in ("update", "delete"):
            schema_editor.execute(SQLITE.format(table=table, what=what, WHAT=what.upper()))


def remove(apps, schema_editor):
    is_postgres = schema_editor.connection.vendor == "postgresql"
    for table in TABLES:
        if is_postgres:
            schema_editor.execute(f"DROP TRIGGER {table}_append_only ON {table}")
            continue
        for what in ("update", "delete"):
            schema_editor.execute(f"DROP TRIGGER {table}_no_{what}")
    if is_postgres:
        schema_editor.execute("DROP FUNCTION spend_refuse()")


class Migration(migrations.Migration):

    replaces = [
        ('spend', '0001_first_release'),
        ('spend', '0003_replica_kind'),
    ]

    initial = True

    dependencies = [
        ('accounts', '0002_audit_append_only'),
    ]

    operations = [
        CreateModels([
            migrations.CreateModel(
                name='LedgerVersion',
                fields=[
                    ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                    ('version', models.BigIntegerField(default=0)),
                ],
            ),
            migrations.CreateModel(
                name='Budget',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('bdg', serialize=False)),
                    ('period', models.CharField(default=slipway.schemas.spend.BudgetPeriod['MONTH'], max_length=8)),
                    ('limit_nano_usd', models.BigIntegerField()),
                    ('stops', models.BooleanField(default=True)),
                    ('counts_exempt', models.BooleanField(default=False)),
                    ('window', models.CharField(blank=True, max_length=8)),
                    ('spent_nano_usd', models.BigIntegerField(default=0)),
                    ('reserved_nano_usd', models.BigIntegerField(default=0)),
                    ('measured_at', models.DateTimeField(blank=True, null=True)),
                    ('reached_at', models.DateTimeField(blank=True, null=True)),
                    ('override_until', models.DateTimeField(blank=True, null=True)),
                    ('override_reason', models.CharField(blank=True, max_length=300)),
                    ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('override_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('person', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.project')),
                    ('team', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.team')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('person__isnull', True), ('project__isnull', False), ('team__isnull', True)), models.Q(('person__isnull', True), ('project__isnull', True), ('team__isnull', False)), models.Q(('person__isnull', False), ('project__isnull', True), ('team__isnull', True)), _connector='OR'), name='budget_of_one'), models.CheckConstraint(condition=models.Q(('limit_nano_usd__gt', 0)), name='budget_positive'), models.CheckConstraint(condition=models.Q(('reserved_nano_usd__gte', 0)), name='budget_reserves_what_is'), models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project', 'period'), name='budget_once_a_project'), models.UniqueConstraint(condition=models.Q(('team__isnull', False)), fields=('team', 'period'), name='budget_once_a_team'), models.UniqueConstraint(condition=models.Q(('person__isnull', False)), fields=('person', 'period'), name='budget_once_a_person')],
                },
            ),
            migrations.CreateModel(
                name='BudgetAlert',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('alrt', serialize=False)),
                    ('window', models.CharField(max_length=8)),
                    ('limit_nano_usd', models.BigIntegerField()),
                    ('level', models.CharField(max_length=16)),
                    ('message', models.CharField(max_length=500)),
                    ('budget', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='spend.budget')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('budget', 'window', 'limit_nano_usd', 'level'), name='budget_alert_once')],
                },
            ),
            migrations.CreateModel(
                name='BudgetStop',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('bstp', serialize=False)),
                    ('workload', models.CharField(max_length=64)),
                    ('epoch', models.PositiveIntegerField()),
                    ('stops_at', models.DateTimeField()),
                    ('budget', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='spend.budget')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'constraints': [models.UniqueConstraint(fields=('workload', 'epoch'), name='budget_stop_once')],
                },
            ),
            migrations.CreateModel(
                name='DayTotal',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('day', models.DateField()),
                    ('project', models.CharField(blank=True, default='', max_length=64)),
                    ('team', models.CharField(blank=True, default='', max_length=64)),
                    ('person', models.CharField(blank=True, default='', max_length=64)),
                    ('tier', models.CharField(blank=True, default='', max_length=64)),
                    ('kind', models.CharField(max_length=32)),
                    ('nano_usd', models.BigIntegerField()),
                ],
                options={
                    'indexes': [models.Index(fields=['project', 'day'], name='day_by_project'), models.Index(fields=['team', 'day'], name='day_by_team'), models.Index(fields=['person', 'day'], name='day_by_person')],
                    'constraints': [models.UniqueConstraint(fields=('day', 'project', 'team', 'person', 'tier', 'kind'), name='day_total_once')],
                },
            ),
            migrations.CreateModel(
                name='Holding',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('hold', serialize=False)),
                    ('kind', models.CharField(max_length=32)),
                    ('what', models.CharField(max_length=32)),
                    ('project', models.CharField(blank=True, max_length=64)),
                    ('team', models.CharField(blank=True, max_length=64)),
                    ('node', models.CharField(blank=True, max_length=64)),
                    ('cpu_millis', models.BigIntegerField(default=0)),
                    ('memory_bytes', models.BigIntegerField(default=0)),
                    ('gpus', models.IntegerField(default=0)),
                    ('stored_bytes', models.BigIntegerField(default=0)),
                    ('begin_ms', models.BigIntegerField()),
                    ('end_ms', models.BigIntegerField(blank=True, null=True)),
                    ('billed_to_ms', models.BigIntegerField()),
                    ('billed_nano_usd', models.BigIntegerField(default=0)),
                    ('is_settled', models.BooleanField(default=False)),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('is_settled', False)), fields=['id'], name='holding_unsettled')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('end_ms__isnull', True)), fields=('kind', 'what', 'project', 'node'), name='holding_one_open')],
                },
            ),
            migrations.CreateModel(
                name='LabelTotal',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('period', models.CharField(max_length=10)),
                    ('project', models.CharField(blank=True, default='', max_length=64)),
                    ('part', models.CharField(max_length=32)),
                    ('key', models.CharField(max_length=128)),
                    ('nano_usd', models.BigIntegerField()),
                ],
                options={
                    'indexes': [models.Index(fields=['period', 'part', '-nano_usd'], name='label_total_dearest')],
                    'constraints': [models.UniqueConstraint(fields=('period', 'project', 'part', 'key'), name='label_total_once')],
                },
            ),
            migrations.CreateModel(
                name='Line',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('source', models.CharField(max_length=40)),
                    ('begin_ms', models.BigIntegerField()),
                    ('end_ms', models.BigIntegerField()),
                    ('nano_usd', models.BigIntegerField()),
                    ('value_nano_usd', models.BigIntegerField(default=0)),
                    ('is_correction', models.BooleanField(default=False)),
                    ('kind', models.CharField(max_length=32)),
                    ('project', models.CharField(blank=True, default='', max_length=64)),
                    ('team', models.CharField(blank=True, default='', max_length=64)),
                    ('person', models.CharField(blank=True, default='', max_length=64)),
                    ('tier', models.CharField(blank=True, default='', max_length=64)),
                    ('node', models.CharField(blank=True, default='', max_length=64)),
                    ('workload', models.CharField(blank=True, default='', max_length=64)),
                    ('made_at', models.DateTimeField(default=portal.core.clock.now)),
                ],
                options={
                    'indexes': [models.Index(fields=['begin_ms'], name='line_by_time'), models.Index(fields=['project', 'begin_ms'], name='line_by_project'), models.Index(fields=['source'], name='line_by_source')],
                    'constraints': [models.CheckConstraint(condition=models.Q(('end_ms__gte', models.F('begin_ms'))), name='line_ahead')],
                },
            ),
            migrations.CreateModel(
                name='MonthTotal',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('month', models.CharField(max_length=7)),
                    ('project', models.CharField(blank=True, default='', max_length=64)),
                    ('team', models.CharField(blank=True, default='', max_length=64)),
                    ('person', models.CharField(blank=True, default='', max_length=64)),
                    ('tier', models.CharField(blank=True, default='', max_length=64)),
                    ('kind', models.CharField(max_length=32)),
                    ('nano_usd', models.BigIntegerField()),
                ],
                options={
                    'indexes': [models.Index(fields=['project', 'month'], name='month_by_project'), models.Index(fields=['team', 'month'], name='month_by_team'), models.Index(fields=['person', 'month'], name='month_by_person')],
                    'constraints': [models.UniqueConstraint(fields=('month', 'project', 'team', 'person', 'tier', 'kind'), name='month_total_once')],
                },
            ),
            migrations.CreateModel(
                name='NodeDay',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('day', models.DateField()),
                    ('node', models.CharField(max_length=64)),
                    ('capacity_nano_usd', models.BigIntegerField(default=0)),
                    ('held_nano_usd', models.BigIntegerField(default=0)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('day', 'node'), name='node_day_once')],
                },
            ),
            migrations.CreateModel(
                name='RatePrice',
                fields=[
                    ('id', portal.core.models.IdField('rate', serialize=False)),
                    ('resource', models.CharField(max_length=16)),
                    ('nano_usd_per_hour', models.BigIntegerField()),
                    ('effective_from', models.DateTimeField(default=portal.core.clock.now)),
                ],
                options={
                    'ordering': ['-effective_from', '-id'],
                    'constraints': [models.UniqueConstraint(fields=('resource', 'effective_from'), name='rate_price_once_a_moment'), models.CheckConstraint(condition=models.Q(('nano_usd_per_hour__gte', 0)), name='rate_price_not_negative')],
                },
            ),
            migrations.CreateModel(
                name='Reservation',
                fields=[
                    ('created_at', models.DateTimeField(default=portal.core.clock.now, editable=False)),
                    ('id', portal.core.models.IdField('rsv', serialize=False)),
                    ('workload', models.CharField(max_length=64)),
                    ('nano_usd', models.BigIntegerField()),
                    ('left_nano_usd', models.BigIntegerField()),
                    ('base_nano_usd', models.BigIntegerField(default=0)),
                    ('budget', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reservations', to='spend.budget')),
                ],
                options={
                    'ordering': ['-pk'],
                    'abstract': False,
                    'indexes': [models.Index(condition=models.Q(('left_nano_usd__gt', 0)), fields=['budget'], name='reservation_open')],
                    'constraints': [models.UniqueConstraint(fields=('budget', 'workload'), name='reservation_once')],
                },
            ),
            migrations.CreateModel(
                name='Split',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('period', models.CharField(max_length=10)),
                    ('project', models.CharField(blank=True, default='', max_length=64)),
                    ('part', models.CharField(max_length=8)),
                    ('key', models.CharField(blank=True, default='', max_length=64)),
                    ('nano_usd', models.BigIntegerField()),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('period', 'project', 'part', 'key'), name='split_once')],
                },
            ),
            migrations.CreateModel(
                name='WorkloadTotal',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('period', models.CharField(max_length=10)),
                    ('project', models.CharField(blank=True, default='', max_length=64)),
                    ('workload', models.CharField(blank=True, default='', max_length=64)),
                    ('person', models.CharField(blank=True, default='', max_length=64)),
                    ('tier', models.CharField(blank=True, default='', max_length=64)),
                    ('kind', models.CharField(max_length=32)),
                    ('nano_usd', models.BigIntegerField()),
                ],
                options={
                    'indexes': [models.Index(fields=['period', '-nano_usd'], name='workload_total_dearest'), models.Index(fields=['project', 'period', '-nano_usd'], name='workload_total_project'), models.Index(fields=['workload', 'period'], name='workload_total_workload')],
                    'constraints': [models.UniqueConstraint(fields=('period', 'project', 'workload', 'person', 'tier', 'kind'), name='workload_total_once')],
                },
            ),
        ]),
        migrations.RunPython(add, remove),
    ]
