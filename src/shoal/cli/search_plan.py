"""What `shoal search` says beforehand: what will be done, what it will take, and who does it."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.machine import available_memory, size_text, thread_count
from shoal.search.data import TrainingData
from shoal.search.forecast import Forecast, forecast
from shoal.search.options import SearchOptions
from shoal.search.screen import clock
from shoal.search.workplace import Workplace, look


@dataclass(frozen=True)
class Plan:
    """A forecast, for options and the seconds that the search may take."""

    forecast: Forecast
    options: SearchOptions
    budget: float | None  # may be more than was asked for, where reading took long

    @staticmethod
    def of(data: TrainingData, options: SearchOptions, budget: float | None) -> Plan:
        return Plan(forecast(data, options), options, budget)

    def words(self) -> list[str]:
        plan, options = self.forecast, self.options
        amount = f"{plan.recipes:,} recipes" if options.budget is None else f"about {plan.recipes:,} recipes"
        found = [
            f"plan: {amount} x {plan.folds} folds ({plan.cv}) = {plan.networks:,} networks, up to {plan.epochs} epochs",
            f"  strategy: {options.strategy}; time: {self._takes()}; memory: about {size_text(plan.memory)}",
        ]
        if plan.memory > available_memory():
            free = size_text(available_memory())
            found.append(f"  note: only {free} of memory are free; use fewer --folds or rows")
        return found

    def _takes(self) -> str:
        seconds = clock(self.forecast.seconds)
        if self.budget is None:
            return f"about {seconds}" + (" in this process" if self.options.executor is not None else "")
        return f"{seconds}, as asked" if self.budget == self.options.budget else f"about {clock(self.budget)}"

    def looked(self) -> list[str]:
        """Connects to the workers, and says who is there."""
        return self.there(None if self.options.executor is None else look(self.options.executor))

    def there(self, workplace: Workplace | None) -> list[str]:
        """The workers, and what the search will take there; nothing where this process trains."""
        if workplace is None:
            return []
        faster = workplace.times_faster(thread_count(self.options.threads))
        if self.budget is None:
            takes = f"time there: about {clock(self.forecast.seconds_there(faster))}"
        else:
            takes = f"there: about {faster * self.forecast.recipes:,.0f} recipes in that time"
        return [f"  workers: {workplace.describe()}", f"  {takes}, if their cores are as fast as those here"]
